#pragma once

#include <memory>

#include "base/options.h"
#include "base/result.h"
#include "engine/call/kept_input.h"
#include "job/devices/device_staging.h"
#include "job/devices/gate_watch.h"

namespace qccl::comm {

// What calls take memory from. Outlives the operations.
struct CallMemory {
  explicit CallMemory(const Options& options) : devices(std::make_shared<DeviceStaging>(options)) {}
  // At which streams of the device wait for calls; null: they don't, and the host waits.
  Result<device::Gates*> gates(int device) {
    QCCL_ASSIGN(device::Gates* const gates, devices->gates(device));
    if (gates != nullptr) watch->add(*gates);
    return gates;
  }

  const std::shared_ptr<DeviceStaging> devices;  // shared with error feedback that is in their memory
  GateWatch* watch = nullptr;                    // the running engine's
  engine::KeptPool kept_inputs;
};

}  // namespace qccl::comm
