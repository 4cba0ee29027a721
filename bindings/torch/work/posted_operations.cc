#include "work/posted_operations.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "errors.h"

namespace qccl::torch_binding {
namespace {

c10d::ErrorType error_type(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::deadline_exceeded: return c10d::ErrorType::TIMEOUT;
    case ErrorKind::peer_lost: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

}  // namespace

// Several operations are one group of the library (group_start() to group_end()).
void PostedOperations::post(TorchCall& call, Communicator group) {
  first_ = with_torch_errors([&]() -> Operations {
    if (call.posts.size() == 1) return {call.posts.front()(group)};
    group.group_start();
    for (const TorchCall::Post& post : call.posts) post(group);
    return {group.group_end()};
  });
  if (!call.later_post) return;
  later_post_ = std::move(call.later_post);
  group_ = std::move(group);
}

void PostedOperations::wait(std::chrono::milliseconds timeout) {
  const auto wait_for_each = [timeout](const Operations& operations) {
    for (const qccl::Work& operation : operations) {
      try {
        if (timeout > kNoTimeout) {
          operation.wait(timeout);
        } else {
          operation.wait();
        }
      } catch (const Error& error) {
        if (!operation.done()) std::rethrow_exception(to_torch(error.info()));
      }
    }
  };
  wait_for_each(first_);
  if (post_later()) wait_for_each(later_);
}

bool PostedOperations::post_later() {
  const std::lock_guard lock(mutex_);
  if (group_) {
    Communicator group = *std::exchange(group_, std::nullopt);
    const TorchCall::Post post = std::exchange(later_post_, nullptr);
    if (std::ranges::any_of(first_, [](const qccl::Work& operation) { return operation.error().has_value(); }))
      return false;
    try {
      later_ = {with_torch_errors([&] { return post(group); })};
    } catch (const std::exception&) {
      later_failure_ = std::current_exception();
    }
  }
  return !later_.empty();
}

void PostedOperations::notify(const std::function<void()>& ended) const {
  const std::lock_guard lock(mutex_);
  const Operations& latest = later_.empty() ? first_ : later_;
  // One more than the operations: the last may end while the others are still being told.
  const auto left = std::make_shared<std::atomic<std::size_t>>(latest.size() + 1);
  const auto count_down = [left, ended] {
    if (left->fetch_sub(1) == 1) ended();
  };
  for (const qccl::Work& operation : latest) operation.notify(count_down);
  count_down();
}

CallEnd PostedOperations::end() const {
  for (const Operations* operations : {&first_, &later_}) {
    for (const qccl::Work& operation : *operations) {
      const auto error = operation.error();
      if (!error) continue;
      const bool late = error->kind == ErrorKind::deadline_exceeded;
      return {to_torch(*error), late ? c10d::WorkResult::TIMEOUT : c10d::WorkResult::COMM_ERROR,
              error_type(error->kind)};
    }
  }
  if (later_failure_) return {later_failure_, c10d::WorkResult::UNKNOWN};
  return {};
}

std::function<std::uint64_t()> PostedOperations::first_number() const {
  return [first = first_.front()] { return first.number(); };
}

}  // namespace qccl::torch_binding
