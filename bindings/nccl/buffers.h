// Where a call's buffers lie, which decides whether it names its stream.
#pragma once

#include <initializer_list>
#include <optional>

#include "communicator.h"

namespace qccl::nccl {

// The stream of the device that has one of the buffers, or, for pinned host memory, of the communicator's device;
// nothing for other host memory. Null buffers do not count. Refuses managed memory, and an input and an output of
// different kinds.
std::optional<DeviceStream> stream_of(const ncclComm& comm, cudaStream_t stream,
                                      std::initializer_list<const void*> buffers);

// The tag of a message that this rank sends itself.
int own_tag();

// Copies behind the work that the stream has, which then waits for the copy. A device's memory goes by way of the host,
// as a message to this rank itself.
void copy(Communicator& group, const void* source, void* target, std::size_t bytes,
          const std::optional<DeviceStream>& stream);
// The same to host memory that no device knows; this thread waits.
void fetch(Communicator& group, const void* source, const DeviceStream& stream, void* target, std::size_t bytes);

}  // namespace qccl::nccl
