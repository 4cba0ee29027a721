#include "buffers.h"

#include <cstring>

namespace qccl::nccl {
namespace {

constexpr int kCopyTag = 1;  // ncclSend() has 0

}  // namespace

std::optional<DeviceStream> stream_of(const ncclComm& comm, cudaStream_t stream,
                                      std::initializer_list<const void*> buffers) {
  std::optional<DeviceStream> found;
  for (const void* const buffer : buffers) {
    if (buffer == nullptr) continue;
    const MemoryPlace place = place_of(buffer, comm.device());
    if (place.home == MemoryHome::host) continue;
    if (place.home != MemoryHome::pinned) return DeviceStream{place.device, stream};
    found = DeviceStream{comm.device(), stream};
  }
  return found;
}

void copy(Communicator& group, const void* source, void* target, std::size_t bytes,
          const std::optional<DeviceStream>& stream) {
  if (!stream) {
    std::memmove(target, source, bytes);
    return;
  }
  const MessageOptions options{.tag = kCopyTag, .stream = stream};
  const Work sent = group.send_async(source, bytes, DataType::uint8, group.rank(), options);
  const Work received = group.recv_async(target, bytes, DataType::uint8, group.rank(), options);
  received.wait();
  sent.wait();
}

}  // namespace qccl::nccl
