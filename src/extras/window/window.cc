// The public Window, and opening one.
#include "qccl/window.h"

#include <fmt/format.h>

#include <numeric>
#include <system_error>
#include <utility>

#include "extras/window/window_state.h"

namespace qccl {
namespace internal {
namespace {

using comm::HeaderKind;
using comm::WindowHeader;

constexpr WindowHeader kGoodbye{static_cast<std::uint64_t>(HeaderKind::goodbye), 0, 0};

Communicator open_group(CommunicatorState& parent) {
  std::vector<int> everyone(parent.group().ranks.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  auto group = parent.subgroup(everyone, parent.group().name + "/window", {});
  copy_settings(parent, *group);
  return Communicator(std::move(group));
}

}  // namespace

WindowState::WindowState(CommunicatorState& parent, std::span<std::byte> memory, std::uint64_t label)
    : context_(parent.context()),
      world_rank_(parent.group().world_rank()),
      group_(open_group(parent)),
      members_(parent.group().ranks.size()) {
  try {
    const Member own{memory.size(), label};
    group_.all_gather(&own, members_.data(), 2, DataType::uint64);
    service_ = std::make_unique<comm::WindowService>(group_, memory, *context_);
  } catch (const std::system_error& error) {
    const std::string cause = fmt::format("open_window: the system refused a thread: {}", error.what());
    group_.abort(cause);
    refuse(ErrorKind::resource_exhausted, "open_window", cause);
  } catch (const std::bad_alloc&) {
    group_.abort("no memory left in open_window()");
    throw;
  }
}

WindowState::~WindowState() {
  try {
    close();
  } catch (const std::exception&) {
    // The error of a member that was lost or late: the window was lost anyway.
  }
}

const WindowState::Member& WindowState::member(int rank, const char* call) const {
  if (rank < 0 || rank >= group_.size()) {
    refuse(ErrorKind::invalid_argument, call,
           fmt::format("there is no rank {}, the ranks are 0 to {}", rank, group_.size() - 1));
  }
  return members_[static_cast<std::size_t>(rank)];
}

Work WindowState::put(const Window::Put& put, Window::Timeout timeout) {
  const Member& target = member(put.to, "put");
  if (!comm::fits(put.offset, put.bytes, target.bytes)) {
    refuse(ErrorKind::invalid_argument, "put",
           fmt::format("{} bytes from offset {} on exceed the window of rank {}, which has {} bytes", put.bytes,
                       put.offset, put.to, target.bytes));
  }
  if (put.data == nullptr && put.bytes > 0) refuse(ErrorKind::invalid_argument, "put", "the data is null");
  const WindowHeader header{static_cast<std::uint64_t>(HeaderKind::put), put.offset, put.bytes};
  return post({header, put.data, put.bytes, put.to, "put"}, timeout);
}

Work WindowState::signal(int to, Window::Timeout timeout) {
  member(to, "signal");
  return post({.header = {static_cast<std::uint64_t>(HeaderKind::signal), 0, 0}, .to = to, .name = "signal"}, timeout);
}

// The header's memory lives as long as the Work's callback.
Work WindowState::post(const Letter& letter, Window::Timeout timeout) {
  const auto header = std::make_shared<const WindowHeader>(letter.header);
  const std::lock_guard lock(posting_);
  check_open(letter.name);
  group_.group_start();
  group_.send_async(header->data(), header->size(), DataType::uint64, letter.to,
                    {.tag = comm::kHeaderTag, .timeout = timeout, .log_name = letter.name});
  if (letter.bytes > 0) {
    group_.send_async(letter.data, letter.bytes, DataType::uint8, letter.to,
                      {.tag = comm::kBytesTag, .timeout = timeout, .log_name = letter.name});
  }
  const Work work = group_.group_end();
  try {
    work.notify([header] {});
  } catch (const Error&) {
    work.wait();
    throw;
  }
  return work;
}

Work WindowState::wait_signal(int from, Window::Timeout timeout) {
  member(from, "wait_signal");
  const std::lock_guard lock(posting_);
  check_open("wait_signal");
  auto work = make_work();
  work->context = context_;
  const Nanoseconds patience = saturating_nanoseconds(timeout.value_or(group_.timeout()));
  service_->await(from, {work, saturating_add(context_->clock().now(), patience)});
  return Work(std::move(work));
}

void WindowState::check_open(const char* call) const {
  if (is_closed_) refuse(ErrorKind::misuse, call, "this window is closed");
  context_->usable().take_or_throw();
  if (context_->call_batch().work() == nullptr) return;
  refuse(ErrorKind::misuse, call, "no calls on windows between group_start() and group_end()");
}

void WindowState::abort(const std::string& reason) {
  try {
    group_.abort(reason);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::misuse) throw;  // the group is closed
  }
}

void WindowState::close() {
  const std::lock_guard once(closing_);
  {
    const std::lock_guard lock(posting_);
    if (std::exchange(is_closed_, true)) return;
  }
  if (service_ == nullptr) return;
  if (!context_->usable().ok()) {
    service_->detach();
    static_cast<void>(service_.release());  // the parent's thread still waits in it, as its condition variables say
    return;
  }
  finish();
}

void WindowState::finish() {
  std::optional<ErrorInfo> failure;
  say_goodbye();
  const TimePoint deadline = saturating_add(context_->clock().now(), saturating_nanoseconds(group_.timeout()));
  if (!service_->wait_until_over(deadline)) {
    failure = ErrorInfo{.kind = ErrorKind::deadline_exceeded,
                        .message = fmt::format("QCCL rank {}, group '{}': close: not all ranks closed the window in "
                                               "{} ms",
                                               world_rank_, group_.name(), group_.timeout().count()),
                        .rank = world_rank_,
                        .operation = "close"};
    group_.abort(failure->message);
    service_->wait_until_over(kForever);
  }
  const SharedFailure lost = service_->join();
  service_.reset();
  group_.close();
  context_.reset();
  if (failure) throw Error(std::move(*failure));
  if (lost != nullptr) throw Error(*lost);
}

// The service reports a failure of the group.
void WindowState::say_goodbye() {
  try {
    for (int rank = 0; rank < group_.size(); ++rank) {
      group_.send_async(kGoodbye.data(), kGoodbye.size(), DataType::uint64, rank,
                        {.tag = comm::kHeaderTag, .log_name = "window"});
    }
  } catch (const Error& error) {
    group_.abort(error.info().message);
  }
}

void WindowState::refuse(ErrorKind kind, const char* call, const std::string& what) const {
  throw Error({.kind = kind,
               .message = fmt::format("QCCL rank {}, group '{}': {}: {}", world_rank_, group_.name(), call, what),
               .rank = world_rank_,
               .operation = call});
}

}  // namespace internal

int Window::rank() const { return state_->group().rank(); }
int Window::size() const { return state_->group().size(); }
std::size_t Window::bytes(int rank) const {
  return memory_checked([&] { return state_->member(rank, "bytes").bytes; });
}
std::uint64_t Window::label(int rank) const {
  return memory_checked([&] { return state_->member(rank, "label").label; });
}

Work Window::put_async(const Put& put, Timeout timeout) {
  return memory_checked([&] { return state_->put(put, timeout); });
}
Work Window::signal_async(int to, Timeout timeout) {
  return memory_checked([&] { return state_->signal(to, timeout); });
}
Work Window::wait_signal_async(int from, Timeout timeout) {
  return memory_checked([&] { return state_->wait_signal(from, timeout); });
}

void Window::abort(const std::string& reason) {
  memory_checked([&] { state_->abort(reason); });
}

void Window::close() {
  memory_checked([&] { state_->close(); });
}

Window open_window(Communicator& group, void* memory, std::size_t bytes, std::uint64_t label) {
  return memory_checked([&] {
    const std::span<std::byte> own(static_cast<std::byte*>(memory), bytes);
    return Window(std::make_shared<internal::WindowState>(*group.state(), own, label));
  });
}

}  // namespace qccl
