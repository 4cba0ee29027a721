// Shared memory that devices read and write where it lies: registered with the driver, until this ends.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "device/device.h"

namespace qccl::device {

// Registered memory as one device has it. A value; the registrations outlive it.
class ReachedMemory {
 public:
  bool empty() const { return ranges_.empty(); }
  // Where the device has these bytes of the host's; null if it does not reach all of them.
  std::byte* find(ConstBytes bytes) const;

 private:
  struct Range {
    ConstBytes bytes;
    std::byte* address;
  };
  std::vector<Range> ranges_;  // by the host's address

  friend class RegisteredMemory;
};

// One thread at a time. The device outlives it.
class RegisteredMemory {
 public:
  // All devices reach the memory from now on; it stays mapped as long as `owner` is. A failure: see Registration.
  Status add(const Device& device, std::shared_ptr<const void> owner, Bytes memory);
  // What has been added, for a device, which has addresses of its own for it.
  Result<ReachedMemory> on(const Device& device) const;
  // Takes back every registration.
  void clear() { ranges_.clear(); }

 private:
  struct Range {
    ConstBytes bytes;
    std::shared_ptr<const void> owner;
    std::unique_ptr<Registration> registration;  // last: ends before its memory does
  };

  std::vector<Range> ranges_;
};

}  // namespace qccl::device
