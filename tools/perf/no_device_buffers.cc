// In the place of device_buffers.cc, in a build without devices (QCCL_DEVICES=OFF).
#include "tools/perf/perf_memory.h"

namespace qccl::tools {

std::optional<std::string> problem_of_devices() {
  return "this qccl was built without devices; build it with QCCL_DEVICES=ON";
}

std::unique_ptr<BufferMemory> make_device_buffers(int) {
  throw Error({.kind = ErrorKind::unsupported, .message = *problem_of_devices()});
}

}  // namespace qccl::tools
