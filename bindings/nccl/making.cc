// Functions that make communicators.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "communicator.h"
#include "groups.h"
#include "results.h"
#include "unique_id.h"
#include "version.h"

namespace qccl::nccl {
namespace {

// What a new communicator has of its parent: the current device, and that it blocks, if it has none.
struct Origin {
  int device = current_device().value_or(0);
  bool is_blocking = true;
};

Origin origin_of(const ncclComm& parent) { return {parent.device(), parent.is_blocking()}; }

// Whether calls block, without a configuration as `inherited`; nothing else of it makes a difference here.
bool is_blocking(const ncclConfig_t* config, bool inherited) {
  if (config == nullptr) return inherited;
  if (config->magic != NCCL_CONFIG_MAGIC || config->size < offsetof(ncclConfig_t, blocking) + sizeof(int)) {
    refuse_argument("the ncclConfig_t was not initialized with NCCL_CONFIG_INITIALIZER");
  }
  if (config->blocking == NCCL_CONFIG_UNDEF_INT || config->blocking == 1) return true;
  if (config->blocking != 0) refuse_argument("ncclConfig_t::blocking is " + std::to_string(config->blocking));
  return false;
}

CommPtr new_comm(ncclComm_t* handle, int device, bool is_blocking) {
  auto comm = std::make_shared<ncclComm>(device, is_blocking);
  *handle = add(comm);
  return comm;
}

Making join(ncclComm_t* handle, const Meeting& meeting, int world, int rank) {
  if (handle == nullptr) refuse_argument("the pointer to the communicator is null");
  if (world < 1 || rank < 0 || rank >= world) {
    refuse_argument("rank " + std::to_string(rank) + " of " + std::to_string(world) + " ranks");
  }
  return {
      .comm = nullptr, .make = [=](const auto& stop) { return meet(meeting, world, rank, stop); }, .handle = handle};
}

ncclResult_t make(Making making, const Origin& origin, const ncclConfig_t* config) {
  const bool blocks = is_blocking(config, origin.is_blocking);
  making.comm = new_comm(making.handle, origin.device, blocks);
  show_version();
  return submit(std::move(making), blocks);
}

ncclResult_t init(ncclComm_t* handle, int world, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  return guarded([&] { return make(join(handle, read_meeting(id), world, rank), Origin(), config); });
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

// The first id that a member has.
Meeting share(Communicator& group, const ncclUniqueId* own) {
  struct Offer {
    ncclUniqueId id{};
    std::uint8_t is_there = 0;
  };
  const std::vector<Offer> mine{
      Offer{own == nullptr ? ncclUniqueId{} : *own, static_cast<std::uint8_t>(own != nullptr)}};
  std::vector<Offer> offers(static_cast<std::size_t>(group.size()));
  group.all_gather(mine, offers);
  const auto found = std::ranges::find(offers, 1, &Offer::is_there);
  if (found == offers.end()) refuse_argument("ncclCommGrow() without an id on all ranks of the communicator");
  return read_meeting(found->id);
}

Communicator grow(Communicator group, const ncclUniqueId* id, int world, const std::stop_token& stop) {
  const int rank = group.rank();
  return meet(share(group, id), world, rank, stop);
}

}  // namespace
}  // namespace qccl::nccl

using namespace qccl::nccl;
using qccl::Communicator;
using qccl::Quorum;

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return guarded([&] {
    if (id == nullptr) refuse_argument("ncclGetUniqueId() with a null pointer");
    show_version();
    *id = make_meeting();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  return init(comm, nranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return init(comm, nranks, id, rank, config);
}

// Several ids make NCCL's meeting faster; ranks that all take the first one meet as well.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int nranks, int rank, int ids, ncclUniqueId* id,
                                      ncclConfig_t* config) {
  return guarded([&] {
    if (ids < 1 || id == nullptr) refuse_argument("ncclCommInitRankScalable() without an id");
    return make(join(comm, read_meeting(*id), nranks, rank), Origin(), config);
  });
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* list) {
  return guarded([&] {
    if (comms == nullptr || devices < 1) refuse_argument("ncclCommInitAll() without communicators");
    const Meeting meeting = read_meeting(make_meeting());
    show_version();
    std::vector<Making> makings;
    for (int rank = 0; rank < devices; ++rank) {
      makings.push_back(join(&comms[rank], meeting, devices, rank));
      makings.back().comm = new_comm(&comms[rank], list == nullptr ? rank : list[rank], true);
    }
    make_all(makings);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  return guarded([&] {
    const CommPtr parent = find(comm);
    if (made == nullptr) refuse_argument("ncclCommSplit() with a null pointer");
    if (color < NCCL_SPLIT_NOCOLOR) refuse_argument("ncclCommSplit() with color " + std::to_string(color));
    Communicator group = parent->group();
    if (color != NCCL_SPLIT_NOCOLOR) {
      Making making{.comm = nullptr,
                    .make = [group, color, key](const auto&) mutable { return group.split(color, key); },
                    .handle = made};
      return make(std::move(making), origin_of(*parent), config);
    }
    *made = nullptr;
    const auto nowhere = std::make_shared<ncclComm>(parent->device(), parent->is_blocking());
    add(nowhere);
    return submit(Making{.comm = nowhere, .make = [group](const auto&) mutable { return group.split(-1); }}, true);
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
    Communicator group = parent->group_to_shrink();
    const std::vector<int> ranks = remaining(group, excluded, count);
    const std::vector<int> without(excluded, excluded + count);
    const auto make_group = [=](const auto&) mutable -> std::optional<Communicator> {
      if (flags == NCCL_SHRINK_DEFAULT) return group.subgroup(ranks, "shrink");
      parent->revoke("ncclCommShrink() with NCCL_SHRINK_ABORT");
      return group.shrink({.without = without, .quorum = Quorum::any});
    };
    return make({.comm = nullptr, .make = make_group, .handle = made}, origin_of(*parent), config);
  });
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  return guarded([&] {
    static_cast<void>(find(comm)->group());
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
    const Communicator group = parent->group();
    if (rank != -1 || nranks <= group.size()) {
      refuse_argument("ncclCommGrow() from " + std::to_string(group.size()) + " to " + std::to_string(nranks) +
                      " ranks, called by a member with rank " + std::to_string(rank) + " instead of -1");
    }
    const std::optional<ncclUniqueId> own = id == nullptr ? std::nullopt : std::optional(*id);
    const auto make_group = [=](const auto& stop) { return grow(group, own ? &*own : nullptr, nranks, stop); };
    return make({.comm = nullptr, .make = make_group, .handle = made}, origin_of(*parent), config);
  });
}
