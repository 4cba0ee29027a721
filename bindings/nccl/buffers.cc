#include "buffers.h"

#include <cstring>
#include <string>

#include "results.h"

namespace qccl::nccl {
namespace {

constexpr int kCopyTag = 1;  // ncclSend() has 0

// Each side is behind the work of its stream; one without a stream is host memory.
struct Copy {
  const void* source;
  std::optional<DeviceStream> source_stream;
  void* target;
  std::optional<DeviceStream> target_stream;
  std::size_t bytes;
};

std::string name_of(const MemoryPlace& place) {
  if (place.home == MemoryHome::device) return "the memory of device " + std::to_string(place.device);
  return place.home == MemoryHome::pinned ? "pinned host memory" : "host memory that no device knows";
}

// As a message to this rank itself.
void run(Communicator& group, const Copy& copy) {
  const Work sent = group.send_async(copy.source, copy.bytes, DataType::uint8, group.rank(),
                                     {.tag = kCopyTag, .stream = copy.source_stream});
  group.recv(copy.target, copy.bytes, DataType::uint8, group.rank(), {.tag = kCopyTag, .stream = copy.target_stream});
  sent.wait();
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

void copy(Communicator& group, const void* source, void* target, std::size_t bytes,
          const std::optional<DeviceStream>& stream) {
  if (!stream) {
    std::memmove(target, source, bytes);
    return;
  }
  run(group, {source, stream, target, stream, bytes});
}

void fetch(Communicator& group, const void* source, const DeviceStream& stream, void* target, std::size_t bytes) {
  run(group, {source, stream, target, {}, bytes});
}

}  // namespace qccl::nccl
