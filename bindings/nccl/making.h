// What the functions that make communicators have in common.
#pragma once

#include "communicator.h"
#include "unique_id.h"

namespace qccl::nccl {

// What a new communicator has of the one that it is made of; else the current device, and it blocks.
struct Origin {
  Origin();
  explicit Origin(const ncclComm& parent);

  int device;
  bool is_blocking = true;
  std::stop_token stop{};
};

// Whether calls block, without a configuration as the origin; nothing else of it makes a difference here.
bool is_blocking(const ncclConfig_t* config, const Origin& origin);
// A communicator with a handle, which is to be made.
CommPtr new_comm(ncclComm_t* handle, int device, bool is_blocking);
// The part of it that is rank `rank` of the `world` ranks with an id. The handle is where the caller wants it.
Making join(ncclComm_t* handle, const Meeting& meeting, int world, int rank);
// Makes a communicator with a handle, or records that in a group.
ncclResult_t make(Making making, const Origin& origin, const ncclConfig_t* config);

}  // namespace qccl::nccl
