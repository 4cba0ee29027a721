// Where the buffers of a staged call are: the caller's, and the host memory that the call needs besides them.
#pragma once

#include <cstddef>
#include <string>

#include "device_engine/staged/shadow_pool.h"
#include "engine/call/device_part.h"

namespace qccl::engine {

// The pinned host memory that lanes on a device need, or in words why the host computes instead.
struct LaneMemory {
  std::size_t bytes = 0;
  const char* why_not = "";
};

// The default has no buffers.
class StagedMemory {
 public:
  enum class Use {
    where_it_lies,  // by the host; a device does not copy
    shadow,         // by the host, on a copy of the device's buffers
    lanes,          // by the device, whose slices pass through pinned host memory
  };

  // Throws std::bad_alloc. Lanes without pinned memory for them become a shadow.
  void take(ShadowPool& pool, const device::Device& device, const DeviceBuffers& buffers, Use use,
            const LaneMemory& lanes);
  // The shadow, for the pool that it came from.
  Shadow release();

  Use use() const { return use_; }
  // "lanes", or "staged: the device has no kernels"; "" of buffers that no device copies.
  std::string describe_place() const;
  // What the operation reads and writes.
  const std::byte* input() const { return used_.input; }
  std::byte* output() const { return used_.output; }
  // Of lanes.
  std::byte* lane_memory() const { return shadow_.data(); }

  bool has_input_copy() const { return use_ == Use::shadow && caller_.input_bytes > 0; }
  bool has_output_copy() const { return use_ == Use::shadow && caller_.output_bytes > 0; }
  Status copy_in(device::Stream& stream) const;
  Status copy_out(device::Stream& stream) const;
  // Fills the caller's output with 0xFF: NaN, or -1. False if the device has nothing to do for it.
  bool fill_output(device::Stream& stream) const;

 private:
  void make_shadow(ShadowPool& pool, const device::Device& device);

  Use use_ = Use::where_it_lies;
  const char* why_shadow_ = "";  // "": nobody asked for lanes
  DeviceBuffers caller_;
  DeviceBuffers used_;
  Shadow shadow_;
  std::size_t input_at_ = 0;  // in the shadow
};

}  // namespace qccl::engine
