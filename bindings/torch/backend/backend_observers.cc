// The part of Backend that watches calls instead of making them: hooks, and estimates of their time.
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

}  // namespace

#if QCCL_TORCH_HAS_HOOKS
void Backend::registerAbortHook(std::int64_t id, c10d::AbortHook hook) {
  refuse_second_hook(hooks_->failure.add(id, std::move(hook)), "an abort", id);
}
#endif

#if QCCL_TORCH_HAS_COMPLETION_HOOKS
void Backend::registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) {
  auto with_arguments = [hook = std::move(hook)](std::uint64_t key, float milliseconds) {
    hook({.completionKey = key, .duration_ms = milliseconds});
  };
  refuse_second_hook(hooks_->completion.add(id, std::move(with_arguments)), "a completion", id);
}
#endif

c10::intrusive_ptr<c10d::Work> ended_work(const TorchCall& call) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(call.value_type());
  future->markCompleted(call.value());
  return c10d::Work::create_from_future(future);
}

void Backend::startTimeEstimate() {
  const auto own = state();
  const std::lock_guard lock(own->posting);
  if (own->estimate) {
    C10_THROW_ERROR(DistBackendError, "qccl: the time of group '" + own->group.name() + "' is being estimated already");
  }
  own->estimate = {std::this_thread::get_id()};
}

float Backend::endTimeEstimate() {
  const auto own = state();
  const std::lock_guard lock(own->posting);
  if (!own->estimate || own->estimate->thread != std::this_thread::get_id()) {
    C10_THROW_ERROR(DistBackendError, "qccl: this thread estimates no time of group '" + own->group.name() + "'");
  }
  return static_cast<float>(std::exchange(own->estimate, std::nullopt)->seconds * 1e6);
}

// If this thread estimates, adds the call's time and returns a Work that has ended. Otherwise returns null.
Backend::WorkPointer Backend::estimate(const TorchCall& call, GroupState& own) {
  {
    const std::lock_guard lock(own.posting);
    if (!own.estimate || own.estimate->thread != std::this_thread::get_id()) return nullptr;
  }
  if (call.later_post) {
    C10_THROW_ERROR(NotImplementedError, std::string(call.title) + ": its time depends on other ranks' elements");
  }
  const double seconds = with_torch_errors([&] {
    Communicator group = own.group;
    group.group_start();
    for (const TorchCall::Post& post : call.posts) post(group);
    return group.group_estimate();
  });
  const std::lock_guard lock(own.posting);
  own.estimate->seconds += seconds;
  return ended_work(call);
}

}  // namespace qccl::torch_binding
