#pragma once

#include <memory>

#include "base/options.h"
#include "device_engine/devices.h"
#include "engine/call/kept_input.h"

namespace qccl::comm {

// What calls take memory from. Outlives the operations.
struct CallMemory {
  explicit CallMemory(const Options& options) : devices(engine::open_devices(options)) {}

  const std::shared_ptr<engine::Devices> devices;  // shared with error feedback that is in their memory
  engine::KeptPool kept_inputs;
};

}  // namespace qccl::comm
