// The kernels that are built into the library, as the driver loads them: cubins for some architectures in one fat
// binary, and PTX, which the driver translates for others. cmake/QcclDevice.cmake makes them.
#pragma once

#include <cstddef>
#include <string_view>

namespace qccl::device {

struct KernelImages {
  const void* cubins = nullptr;
  const char* ptx = nullptr;         // ends with a zero byte
  std::size_t bytes = 0;             // of both
  std::string_view architectures{};  // those of the cubins: "80, 90"

  bool empty() const { return cubins == nullptr; }
};

// Empty if the library was built without CUDA's compiler.
KernelImages built_in_kernels();

}  // namespace qccl::device
