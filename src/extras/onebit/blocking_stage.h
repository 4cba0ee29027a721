// Device buffers of a call that is composed of other calls, in host memory while those run. One thread, which waits.
#pragma once

#include <vector>

#include "base/clock.h"
#include "device_engine/devices.h"

namespace qccl::comm {

class BlockingStage {
 public:
  enum class Use { read, write, update };
  struct Buffer {
    engine::UsedBuffer memory;
    Use use;
  };

  // The clock and the devices outlive it.
  BlockingStage(engine::Devices& devices, const Clock& clock) : devices_(devices), clock_(clock) {}

  // Waits for the stream, and copies what the call reads to host memory. Fails as Devices does, and with
  // deadline_exceeded.
  Status bring(const DeviceStream& stream, std::span<const Buffer> buffers, TimePoint deadline);
  // The host memory of a buffer, in the order of bring(). It has the buffer's content if the call reads it.
  std::byte* host(std::size_t index) const { return hosts_[index]; }
  // Copies what the call has written back to the device.
  Status give_back(TimePoint deadline);

 private:
  template <class Condition>
  Status wait_until(const Condition& holds, TimePoint deadline);

  engine::Devices& devices_;
  const Clock& clock_;
  std::vector<engine::DevicePartPtr> parts_;
  std::vector<std::byte*> hosts_;
};

}  // namespace qccl::comm
