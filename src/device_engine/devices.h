// Calls on device memory, as the rest of the library sees them. A library that is built without devices has
// src/no_devices in the place of this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "engine/call/device_part.h"
#include "engine/call/executable_plan.h"
#include "engine/call/feedback_state.h"
#include "qccl/device.h"
#include "transport/transport.h"

namespace qccl::engine {

// A part of a caller's buffer, by the name that errors have for it.
struct UsedBuffer {
  const char* name;
  const std::byte* begin;
  std::size_t bytes;
};

// A collective that a device may compute.
struct ComputedCall {
  const ExecutablePlan& plan;
  int world;                          // of the group
  internal::FeedbackState* feedback;  // null: without
  bool keeps_input;
};

// Where a stream waits (device::Gate).
struct StreamGate {
  void* of_device = nullptr;
  std::size_t word = 0;
  std::uint32_t count = 0;
};

// A context's devices, which are opened when a call first names them. Thread-safe. Its functions fail with Unsupported
// where there is no driver.
class Devices {
 public:
  // Up to this size a call is faster between two copies than as jobs of its slices.
  static constexpr std::uint64_t kShortBytes = 64 * 1024;

  virtual ~Devices() = default;

  // Where the transport has its frames, before the first call. A device with kernels writes and reads them there, if
  // the pinned limit and the driver let it.
  virtual void set_frame_memory(std::vector<FrameRooms::Memory> memory) = 0;

  // Device memory for a call that uses none. InvalidArgument for managed memory, for memory of another device than
  // the stream's, and for buffers of different kinds.
  virtual Result<MemoryKind> kind_of(const DeviceStream& stream, std::span<const UsedBuffer> buffers) = 0;
  // The device's part of a call that is about to be posted, which begins with what the stream has now. `call`: null:
  // the device copies, and computes nothing. Moves the error feedback to the device, if that computes. Throws
  // std::bad_alloc.
  virtual Result<DevicePartPtr> begin(const DeviceStream& stream, const DeviceBuffers& buffers, MemoryKind kind,
                                      const ComputedCall* call) = 0;

  // Whether streams of the device wait at gates: not if QCCL_STREAM_ORDER says so, nor if it has none.
  virtual Result<bool> has_gates(int device) = 0;
  // The stream waits from here on. Nothing if it can't: then the host waits.
  virtual Result<std::optional<StreamGate>> close_gate(const DeviceStream& stream) = 0;
  // The stream goes on. False: it has gone on before. Takes no memory.
  virtual bool open_gate(const StreamGate& gate) = 0;
  // Lets all streams go on if the engine stands still, as long as the result lives; no call is under way when it is
  // dropped. `rounds`: how many rounds the engine has made; any thread may call it.
  virtual std::shared_ptr<void> watch_gates(std::function<std::uint64_t()> rounds) = 0;
};

std::shared_ptr<Devices> open_devices(const Options& options);

}  // namespace qccl::engine
