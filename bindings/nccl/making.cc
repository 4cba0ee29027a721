// Ids, and communicators of ranks that meet at one.
#include "making.h"

#include <cstddef>

#include "groups.h"
#include "results.h"

namespace qccl::nccl {

Origin::Origin() : device(current_device().value_or(0)) {}
Origin::Origin(const ncclComm& parent)
    : device(parent.device()), is_blocking(parent.is_blocking()), stop(parent.ended()) {}

bool is_blocking(const ncclConfig_t* config, const Origin& origin) {
  if (config == nullptr) return origin.is_blocking;
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
  const bool blocks = is_blocking(config, origin);
  making.comm = new_comm(making.handle, origin.device, blocks);
  making.stop = origin.stop;
  show_version();
  return submit(std::move(making), blocks);
}

namespace {

ncclResult_t init(ncclComm_t* handle, int world, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  return guarded([&] { return make(join(handle, read_meeting(id), world, rank), Origin(), config); });
}

}  // namespace
}  // namespace qccl::nccl

using namespace qccl::nccl;

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
