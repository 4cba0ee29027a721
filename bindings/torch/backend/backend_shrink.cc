// The part of Backend that goes on with a group of the ranks that live (docs/failures.md).
#include <algorithm>
#include <string>
#include <utility>

#include "backend/backend.h"

namespace qccl::torch_binding {
namespace {

// torch's SHRINK_ABORT.
constexpr int kAbortFirst = 1;

std::string text_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

// The ranks below `size` that are in neither list.
std::vector<int> ranks_outside(int size, const std::vector<int>& members, const std::vector<int>& without) {
  std::vector<int> outside;
  for (int rank = 0; rank < size; ++rank) {
    const auto is_rank = [rank](int other) { return other == rank; };
    if (std::ranges::none_of(members, is_rank) && std::ranges::none_of(without, is_rank)) outside.push_back(rank);
  }
  return outside;
}

}  // namespace

std::vector<int> Backend::shrink_to_living(const ShrinkOptions& options) {
  const auto own = state();
  if (own->survivors) return own->survivors->members;
  Communicator living = own->group.shrink(options);
  const std::vector<int> old = own->group.world_ranks();
  std::vector<int> members;
  for (const int world_rank : living.world_ranks()) {
    members.push_back(static_cast<int>(std::ranges::find(old, world_rank) - old.begin()));
  }
  return own->survivors.emplace(GroupState::Survivors{std::move(living), std::move(members)}).members;
}

c10::intrusive_ptr<Backend> Backend::successor(const c10::intrusive_ptr<Options>& options) {
  const auto own = state();
  auto [living, members] = std::exchange(own->survivors, std::nullopt).value();
  GroupSpec spec{.rank = living.rank(),
                 .size = living.size(),
                 .name = living.name(),
                 .settings = settings_in(options, options_->settings),
                 .message_compression = own->job->message_compression(),
                 .may_gate = own->share->may_gate};
  if (spec.settings.compression) living.set_compression(*spec.settings.compression);
  for (const int member : members) {
    // torch numbers the ranks of a default group anew.
    const auto global = options_->global_ranks_in_group.at(static_cast<std::size_t>(member));
    spec.global_ranks.push_back(root_ ? static_cast<std::int64_t>(spec.global_ranks.size())
                                      : static_cast<std::int64_t>(global));
  }
  auto job = own->job;
  if (root_) {
    job = JobRegistry::instance().add(std::make_shared<SharedJob>(living, spec, own->job.get()), true);
  } else {
    job->add_group(living);
  }
  auto backend = c10::make_intrusive<Backend>(job, living, spec, root_);
  if (options) {
    if (const auto timeout = chosen_timeout(*options)) backend->setTimeout(*timeout);
  }
  return backend;
}

c10::intrusive_ptr<c10d::Backend> Backend::shrink(const std::vector<std::int64_t>& without, int flags,
                                                  const c10::intrusive_ptr<Options>& options) {
  ShrinkOptions shrink_options;
  shrink_options.without.assign(without.begin(), without.end());
  if ((flags & kAbortFirst) != 0) {
    with_torch_errors([&] { state()->groups.abort("this rank's program shrinks the process group"); });
  } else {
    state()->finish_operations(options_->timeout);
  }
  const std::vector<int> members = with_torch_errors([&] { return shrink_to_living(shrink_options); });
  if (const auto lost = ranks_outside(getSize(), members, shrink_options.without); !lost.empty()) {
    C10_THROW_ERROR(DistBackendError, "qccl: shrink of group '" + state()->group.name() + "': lost as well: rank " +
                                          text_of(lost) + ": exclude these ranks too, or call qccl.shrink(group), " +
                                          "which leaves out all that are lost");
  }
  return successor(options);
}

}  // namespace qccl::torch_binding
