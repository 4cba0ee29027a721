#include "buffers.h"

#include <cstring>
#include <string>

#include "results.h"

namespace qccl::nccl {
namespace {

std::string name_of(const MemoryPlace& place) {
  if (place.home == MemoryHome::device) return "the memory of device " + std::to_string(place.device);
  return place.home == MemoryHome::pinned ? "pinned host memory" : "host memory that no device knows";
}

}  // namespace

std::optional<DeviceStream> stream_of(const ncclComm& comm, cudaStream_t stream,
                                      std::initializer_list<const void*> buffers) {
  std::optional<MemoryPlace> first;
  for (const void* const buffer : buffers) {
    if (buffer == nullptr) continue;
    const MemoryPlace place = place_of(buffer, comm.device());
    if (place.home == MemoryHome::managed) refuse_argument("a buffer in managed memory: copy it to device memory");
    if (first && (place.home != first->home || place.device != first->device)) {
      refuse_argument("the input is in " + name_of(*first) + ", the output in " + name_of(place));
    }
    first = place;
  }
  if (!first || first->home == MemoryHome::host) return {};
  return DeviceStream{first->home == MemoryHome::pinned ? comm.device() : first->device, stream};
}

int own_tag() {
  constexpr unsigned kTags = 30'000;  // ncclSend() has 0
  return 1 + static_cast<int>(process().own_messages++ % kTags);
}

void copy(Communicator& group, const void* source, void* target, std::size_t bytes,
          const std::optional<DeviceStream>& stream) {
  if (!stream) {
    std::memmove(target, source, bytes);
    return;
  }
  const MessageOptions options{.tag = own_tag(), .stream = stream};
  const Work sent = group.send_async(source, bytes, DataType::uint8, group.rank(), options);
  const Work received = group.recv_async(target, bytes, DataType::uint8, group.rank(), options);
  sent.block(*stream);
  received.block(*stream);
}

void fetch(Communicator& group, const void* source, const DeviceStream& stream, void* target, std::size_t bytes) {
  const int tag = own_tag();
  const Work sent = group.send_async(source, bytes, DataType::uint8, group.rank(), {.tag = tag, .stream = stream});
  group.recv(target, bytes, DataType::uint8, group.rank(), {.tag = tag});
  sent.wait();
}

}  // namespace qccl::nccl
