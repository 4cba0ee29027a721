#include "backend/reconfigurable.h"

#if QCCL_TORCH_HAS_RECONFIGURE

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <variant>

namespace qccl::torch_binding {
namespace {

c10::intrusive_ptr<GroupOptions> options_of(const GroupSpec& spec) {
  auto options = c10::make_intrusive<GroupOptions>(spec.settings, spec.timeout.value_or(kBackendDefaultTimeout));
  options->group_name = spec.name;
  options->global_ranks_in_group.assign(spec.global_ranks.begin(), spec.global_ranks.end());
  options->enable_reconfigure = true;
  return options;
}

c10::intrusive_ptr<c10d::Work> ended_work() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
  future->markCompleted();
  return c10d::Work::create_from_future(future);
}

}  // namespace

Reconfigurable::Reconfigurable(GroupSpec spec, std::string handle)
    : c10d::Backend(spec.rank, spec.size),
      spec_(std::move(spec)),
      handle_(std::move(handle)),
      options_(options_of(spec_)) {}

GroupPointer Reconfigurable::current() const {
  const std::lock_guard lock(mutex_);
  if (current_ == nullptr) {
    C10_THROW_ERROR(DistBackendError, "qccl: group '" + spec_.name + "' has no ranks: call reconfigure() first");
  }
  return current_;
}

// The handles in the order of their ranks.
std::vector<std::string> Reconfigurable::ranks_of(const c10d::ReconfigureOptions& options) const {
  std::vector<std::string> ranks;
  std::visit([&](const auto& handles) { ranks.assign(handles.begin(), handles.end()); }, options.handles);
  const bool is_set = options.handles.index() == 0;
  std::vector<std::string> sorted = ranks;
  std::ranges::sort(sorted);
  require(std::ranges::adjacent_find(sorted) == sorted.end(), "reconfigure", "a handle is listed twice");
  require(std::ranges::binary_search(sorted, handle_), "reconfigure", "the ", sorted.size(),
          " handles leave out this rank's own, ", handle_);
  return is_set ? sorted : ranks;
}

c10::intrusive_ptr<c10d::Work> Reconfigurable::reconfigure(const c10d::ReconfigureOptions& options) {
  const std::vector<std::string> ranks = ranks_of(options);
  require(used_.insert(options.uuid).second, "reconfigure", "this group has used uuid ", options.uuid, " already");
  shutdown();

  GroupSpec spec = spec_;
  spec.store = c10::make_intrusive<c10d::PrefixStore>("reconfigure/" + std::to_string(options.uuid), spec_.store);
  spec.rank = static_cast<int>(std::ranges::find(ranks, handle_) - ranks.begin());
  spec.size = static_cast<int>(ranks.size());
  spec.global_ranks.resize(ranks.size());
  spec.alone = true;  // torch's numbers of ranks are not this group's
  std::iota(spec.global_ranks.begin(), spec.global_ranks.end(), 0);
  if (const auto timeout = chosen_timeout(*options_)) spec.timeout = timeout;
  spec.init_timeout = options.timeout ? options.timeout : spec.timeout;
  auto group = with_torch_errors([&] { return GroupPointer::element_type::make_job(spec); });
#if QCCL_TORCH_HAS_HOOKS
  group->registerAbortHook(0, [hooks = hooks_] { hooks->failure.run(); });
#endif
#if QCCL_TORCH_HAS_COMPLETION_HOOKS
  group->registerCompletionHook(
      0, [hooks = hooks_](const auto& end) { hooks->completion.run(end.completionKey, end.duration_ms.value_or(0)); });
#endif

  rank_ = spec.rank;
  size_ = spec.size;
  const std::lock_guard lock(mutex_);
  current_ = std::move(group);
  return ended_work();
}

#if QCCL_TORCH_HAS_HOOKS
void Reconfigurable::registerAbortHook(std::int64_t id, c10d::AbortHook hook) {
  add_failure_hook(hooks_->failure, id, std::move(hook));
}
#endif

#if QCCL_TORCH_HAS_COMPLETION_HOOKS
void Reconfigurable::registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) {
  add_completion_hook(hooks_->completion, id, std::move(hook));
}
#endif

void Reconfigurable::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  const std::lock_guard lock(mutex_);
  if (current_ != nullptr) current_->setTimeout(timeout);
}

void Reconfigurable::abort() {
  const std::lock_guard lock(mutex_);
  if (current_ != nullptr) current_->abort();
}

void Reconfigurable::shutdown() {
  GroupPointer ended;
  {
    const std::lock_guard lock(mutex_);
    ended = std::exchange(current_, nullptr);
  }
  if (ended != nullptr) ended->shutdown();
}

}  // namespace qccl::torch_binding

#endif
