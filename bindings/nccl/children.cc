// Communicators that are made of another one's ranks.
//
// What the ranks tell each other goes through a group of its own: ending it leaves the parent as it is, whose calls may
// go on meanwhile.
#include <algorithm>
#include <numeric>

#include "groups.h"
#include "making.h"
#include "results.h"

namespace qccl::nccl {
namespace {

// What each rank of the group gives, by rank. The stop ends it on all ranks.
template <class T>
std::vector<T> exchange(Communicator& group, const T& own, const std::string& name, const std::stop_token& stop) {
  std::vector<int> everyone(static_cast<std::size_t>(group.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  Communicator twin = group.subgroup(everyone, name, stop);
  const std::stop_callback on_stop(stop, [&] { twin.abort("ncclCommAbort()"); });
  std::vector<T> all(everyone.size());
  twin.all_gather(std::vector<T>{own}, all);
  return all;
}

struct Choice {
  int color;
  int key;
};

// Ranks of one color, by key, then by rank.
std::optional<Communicator> split(Communicator& group, const Choice& own, const std::string& name,
                                  const std::stop_token& stop) {
  const std::vector<Choice> choices = exchange(group, own, name, stop);
  if (own.color == NCCL_SPLIT_NOCOLOR) return std::nullopt;
  const auto choice_of = [&](int rank) { return choices[static_cast<std::size_t>(rank)]; };
  std::vector<int> members;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (choice_of(rank).color == own.color) members.push_back(rank);
  }
  std::ranges::stable_sort(members, {}, [&](int rank) { return choice_of(rank).key; });
  return group.subgroup(members, name + "/" + std::to_string(own.color), stop);
}

// The ranks that go on, in their old order.
std::vector<int> remaining(const Communicator& group, const int* excluded, int count) {
  if (count < 0 || (count > 0 && excluded == nullptr)) refuse_argument("ncclCommShrink() without a list of ranks");
  std::vector<bool> goes_on(static_cast<std::size_t>(group.size()), true);
  for (int i = 0; i < count; ++i) {
    if (excluded[i] < 0 || excluded[i] >= group.size() || excluded[i] == group.rank()) {
      refuse_argument("ncclCommShrink() without rank " + std::to_string(excluded[i]) + ", called by rank " +
                      std::to_string(group.rank()) + " of " + std::to_string(group.size()));
    }
    goes_on[static_cast<std::size_t>(excluded[i])] = false;
  }
  std::vector<int> ranks;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (goes_on[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
  }
  return ranks;
}

// The group to make others of: the parent's, or the heir of a revoked one.
Communicator base(const Communicator& group, const std::shared_ptr<Heir>& heir, const std::stop_token& stop) {
  return heir == nullptr ? group : heir->of_all(group, stop);
}

// Without those ranks, whether they live or not; ends the parent.
Communicator shrink(Communicator& group, ncclComm& parent, const std::vector<int>& without,
                    const std::stop_token& stop) {
  parent.revoke("ncclCommShrink() with NCCL_SHRINK_ABORT");
  const std::stop_callback on_stop(stop, [&] { parent.close(); });
  return group.shrink({.without = without, .quorum = Quorum::any});
}

// Those ranks of a revoked communicator, whose heir has been made.
Communicator shrink(Communicator heir, const Communicator& group, std::vector<int> ranks, const std::string& name,
                    const std::stop_token& stop) {
  const std::vector<int> old_world = group.world_ranks();
  const std::vector<int> world = heir.world_ranks();
  for (int& rank : ranks) {
    const auto found = std::ranges::find(world, old_world[static_cast<std::size_t>(rank)]);
    if (found == world.end()) {
      throw Error({.kind = ErrorKind::peer_lost,
                   .message = "QCCL: ncclCommShrink() with rank " + std::to_string(rank) + ", which is lost"});
    }
    rank = static_cast<int>(found - world.begin());
  }
  return heir.subgroup(ranks, name, stop);
}

// The meeting of the first id that a member has.
Meeting share(Communicator& group, const std::optional<ncclUniqueId>& own, const std::string& name,
              const std::stop_token& stop) {
  struct Offer {
    ncclUniqueId id;
    std::uint8_t is_there;
  };
  const Offer offer{own.value_or(ncclUniqueId{}), static_cast<std::uint8_t>(own.has_value())};
  const std::vector<Offer> offers = exchange(group, offer, name, stop);
  const auto found = std::ranges::find(offers, 1, &Offer::is_there);
  if (found == offers.end()) refuse_argument("ncclCommGrow() without an id on all ranks of the communicator");
  return read_meeting(found->id);
}

}  // namespace
}  // namespace qccl::nccl

using namespace qccl::nccl;
using qccl::Communicator;

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  return guarded([&] {
    const CommPtr parent = find(comm);
    if (made == nullptr) refuse_argument("ncclCommSplit() with a null pointer");
    if (color < NCCL_SPLIT_NOCOLOR) refuse_argument("ncclCommSplit() with color " + std::to_string(color));
    const Origin origin(*parent);
    const bool blocks = is_blocking(config, origin);
    const auto make_part = [group = parent->group_for_children(), heir = parent->heir(), own = Choice{color, key},
                            name = parent->name_child("split")](const auto& stop) {
      Communicator from = base(group, heir, stop);
      return split(from, own, name, stop);
    };
    if (color != NCCL_SPLIT_NOCOLOR) return make({.comm = nullptr, .make = make_part, .handle = made}, origin, config);
    *made = nullptr;
    const auto nowhere = std::make_shared<ncclComm>(parent->device(), blocks);
    if (!blocks) parent->keep(nowhere);
    return submit({.comm = nowhere, .make = make_part, .stop = origin.stop}, blocks);
  });
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config,
                            int flags) {
  return guarded([&] {
    const CommPtr parent = find(comm);
    if (made == nullptr) refuse_argument("ncclCommShrink() with a null pointer");
    if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT) {
      refuse_argument("ncclCommShrink() with flags " + std::to_string(flags));
    }
    Communicator group = parent->group_for_children();
    const auto heir = parent->heir();
    const std::vector<int> ranks = remaining(group, excluded, count);
    const std::vector<int> without(excluded, excluded + count);
    const auto make_group = [=](const auto& stop) mutable {
      if (heir != nullptr && heir->is_made()) return shrink(heir->of(group, stop), group, ranks, "shrink", stop);
      if (heir != nullptr || flags == NCCL_SHRINK_ABORT) return shrink(group, *parent, without, stop);
      return group.subgroup(ranks, "shrink", stop);
    };
    return make({.comm = nullptr, .make = make_group, .handle = made}, Origin(*parent), config);
  });
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  return guarded([&] {
    static_cast<void>(find(comm)->group_for_children());
    return ncclGetUniqueId(id);
  });
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId* id, int rank, ncclComm_t* made,
                          ncclConfig_t* config) {
  return guarded([&] {
    if (made == nullptr) refuse_argument("ncclCommGrow() with a null pointer");
    if (comm == nullptr) {
      if (id == nullptr) refuse_argument("ncclCommGrow() of a new rank without an id");
      return make(join(made, read_meeting(*id), nranks, rank), Origin(), config);
    }
    const CommPtr parent = find(comm);
    const Communicator group = parent->group_for_children();
    if (rank != -1 || nranks <= group.size()) {
      refuse_argument("ncclCommGrow() from " + std::to_string(group.size()) + " to " + std::to_string(nranks) +
                      " ranks, called by a member with rank " + std::to_string(rank) + " instead of -1");
    }
    const std::optional<ncclUniqueId> own = id == nullptr ? std::nullopt : std::optional(*id);
    const auto make_group = [=, heir = parent->heir(), name = parent->name_child("grow")](const auto& stop) {
      Communicator from = base(group, heir, stop);
      return meet(share(from, own, name, stop), nranks, from.rank(), stop);
    };
    return make({.comm = nullptr, .make = make_group, .handle = made}, Origin(*parent), config);
  });
}
