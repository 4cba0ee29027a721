// Shared memory that devices read and write where it lies: registered with the driver, until this ends.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "device/device.h"

namespace qccl::device {

// Thread-safe once it was filled. The device outlives it.
class RegisteredMemory {
 public:
  // All devices reach the memory from now on; it stays mapped as long as `owner` is. A failure: see Registration.
  Status add(const Device& device, std::shared_ptr<const void> owner, Bytes memory);
  // Whether devices reach all of these bytes.
  bool contains(ConstBytes bytes) const;
  // Bytes.
  std::size_t size() const { return size_; }
  // Takes back every registration.
  void clear();

 private:
  struct Range {
    ConstBytes bytes;
    std::shared_ptr<const void> owner;
    std::unique_ptr<Registration> registration;  // last: ends before its memory does
  };

  std::vector<Range> ranges_;  // by address
  std::size_t size_ = 0;
};

}  // namespace qccl::device
