// The part of Backend that watches calls instead of making them: hooks, and estimates of their time.
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

#include <string>
#include <utility>

#include "backend/backend.h"

namespace qccl::torch_binding {
namespace {

[[maybe_unused]] void refuse_second_hook(bool added, const char* kind, std::int64_t id) {
  if (added) return;
  C10_THROW_ERROR(ValueError, "qccl: the process group has " + std::string(kind) + " hook " + std::to_string(id) +
                                  " already: unregister it, or register with another number");
}

// A Work that has ended, with the call's outputs as they are.
Backend::WorkPointer ended_work(const TorchCall& call) {
  c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
  const bool has_lists = call.outputs.size() > 1;
  if (has_lists) type = c10::ListType::create(type);
  auto future = c10::make_intrusive<c10::ivalue::Future>(type);
  if (has_lists) {
    future->markCompleted(c10::IValue(call.outputs));
  } else {
    future->markCompleted(c10::IValue(call.outputs.empty() ? Backend::Tensors{} : call.outputs.front()));
  }
  return c10d::Work::create_from_future(future);
}

}  // namespace

#if QCCL_TORCH_HAS_HOOKS
void add_failure_hook(Hooks<>& hooks, std::int64_t id, c10d::AbortHook hook) {
  refuse_second_hook(hooks.add(id, std::move(hook)), "an abort", id);
}

void Backend::registerAbortHook(std::int64_t id, c10d::AbortHook hook) {
  add_failure_hook(share_->failure_hooks, id, std::move(hook));
}
#endif

#if QCCL_TORCH_HAS_COMPLETION_HOOKS
void add_completion_hook(Hooks<std::uint64_t, float>& hooks, std::int64_t id, c10d::CompletionHook hook) {
  auto with_arguments = [hook = std::move(hook)](std::uint64_t key, float milliseconds) {
    hook({.completionKey = key, .duration_ms = milliseconds});
  };
  refuse_second_hook(hooks.add(id, std::move(with_arguments)), "a completion", id);
}

void Backend::registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) {
  add_completion_hook(share_->completion_hooks, id, std::move(hook));
}
#endif

void Backend::startTimeEstimate() {
  const std::lock_guard lock(posting_);
  if (estimate_) {
    C10_THROW_ERROR(DistBackendError, "qccl: the time of group '" + group_.name() + "' is being estimated already");
  }
  estimate_ = {std::this_thread::get_id()};
}

float Backend::endTimeEstimate() {
  const std::lock_guard lock(posting_);
  if (!estimate_ || estimate_->thread != std::this_thread::get_id()) {
    C10_THROW_ERROR(DistBackendError, "qccl: this thread estimates no time of group '" + group_.name() + "'");
  }
  return static_cast<float>(std::exchange(estimate_, std::nullopt)->seconds * 1e6);
}

// If this thread estimates, adds the call's time and returns a Work that has ended. Otherwise returns null.
Backend::WorkPointer Backend::estimate(const TorchCall& call) {
  {
    const std::lock_guard lock(posting_);
    if (!estimate_ || estimate_->thread != std::this_thread::get_id()) return nullptr;
  }
  if (call.later_post) {
    C10_THROW_ERROR(NotImplementedError, std::string(call.title) + ": its time depends on other ranks' elements");
  }
  const double seconds = with_torch_errors([&] {
    Communicator group = group_;
    group.group_start();
    for (const TorchCall::Post& post : call.posts) post(group);
    return group.group_estimate();
  });
  const std::lock_guard lock(posting_);
  estimate_->seconds += seconds;
  return ended_work(call);
}

}  // namespace qccl::torch_binding
