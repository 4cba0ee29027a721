// The part of Backend for c10d's reconfigure regime, where c10d has one: a process group that has no ranks until
// reconfigure(), which gives it new ones as often as the program likes.
#include "backend/backend.h"

#if QCCL_TORCH_HAS_RECONFIGURE

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <variant>

namespace qccl::torch_binding {
namespace {

// The handles in the order of their ranks.
std::vector<std::string> ranks_of(const c10d::ReconfigureOptions& options, const std::string& own) {
  std::vector<std::string> ranks;
  std::visit([&](const auto& handles) { ranks.assign(handles.begin(), handles.end()); }, options.handles);
  const bool is_set = options.handles.index() == 0;
  std::vector<std::string> sorted = ranks;
  std::ranges::sort(sorted);
  require(std::ranges::adjacent_find(sorted) == sorted.end(), "reconfigure", "a handle is listed twice");
  require(std::ranges::binary_search(sorted, own), "reconfigure", "the ", sorted.size(),
          " handles leave out this rank's own, ", own);
  return is_set ? sorted : ranks;
}

}  // namespace

Backend::Backend(GroupSpec spec, std::string handle)
    : c10d::Backend(spec.rank, spec.size),
      root_(true),
      options_(options_of(spec, spec.timeout.value_or(kBackendDefaultTimeout))),
      regime_(Regime{std::move(spec), std::move(handle)}) {
  options_->enable_reconfigure = true;
}

c10d::ReconfigureHandle Backend::get_reconfigure_handle() const {
  return regime_ ? regime_->handle : c10d::Backend::get_reconfigure_handle();
}

Backend::WorkPointer Backend::reconfigure(const c10d::ReconfigureOptions& options) {
  if (!regime_) return c10d::Backend::reconfigure(options);
  const std::vector<std::string> ranks = ranks_of(options, regime_->handle);
  require(regime_->used.insert(options.uuid).second, "reconfigure", "this group has used uuid ", options.uuid,
          " already");
  shutdown();
  const auto replace = [this](std::shared_ptr<GroupState> next) {
    const std::lock_guard lock(replacing_);
    state_.swap(next);
  };
  replace(nullptr);

  GroupSpec spec = regime_->spec;
  spec.store = c10::make_intrusive<c10d::PrefixStore>("reconfigure/" + std::to_string(options.uuid), spec.store);
  spec.rank = static_cast<int>(std::ranges::find(ranks, regime_->handle) - ranks.begin());
  spec.size = static_cast<int>(ranks.size());
  spec.global_ranks.resize(ranks.size());
  spec.alone = true;  // torch's numbers of ranks are not this group's
  std::iota(spec.global_ranks.begin(), spec.global_ranks.end(), 0);
  if (const auto timeout = chosen_timeout(*options_)) spec.timeout = timeout;
  spec.init_timeout = options.timeout ? options.timeout : spec.timeout;
  const auto job = with_torch_errors([&] { return JobRegistry::instance().add(std::make_shared<SharedJob>(spec)); });
  rank_ = spec.rank;
  size_ = spec.size;
  options_->global_ranks_in_group.assign(spec.global_ranks.begin(), spec.global_ranks.end());
  options_->settings = spec.settings;
  replace(std::make_shared<GroupState>(job, job->communicator(), spec, hooks_));
  return ended_work({c10d::OpType::BARRIER, "qccl:reconfigure"});
}

}  // namespace qccl::torch_binding

#endif
