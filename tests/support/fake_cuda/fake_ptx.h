// Kernels of PTX images on the fake driver's memory: what CUDA's compiler made, run on the CPU (tests/support/ptx).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device/driver.h"
#include "support/ptx/launch.h"

namespace qccl::device::fake {

// A launch as the driver takes it: parameters are copied.
struct CompiledLaunch {
  std::shared_ptr<ptx::Module> module;
  const char* entry = nullptr;
  std::vector<std::vector<std::byte>> parameters;
  ptx::Grid grid;

  // In the stream's thread. What a device would not forgive is a misuse.
  void run() const;
};

// What the driver makes of an image: for PTX a module; null for others, which tests invent and whose kernels are the
// bodies on the host. `code` is not success for machine code, which no fake device runs, and for PTX that is not
// understood.
std::shared_ptr<ptx::Module> compiled_module(const void* image, Code& code);

}  // namespace qccl::device::fake
