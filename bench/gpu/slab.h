// The slices of one array, on a GPU and as they should be: a host copy with what the kernels must have written, poison
// between the slices and behind them included.
#pragma once

#include <optional>

#include "bench/gpu/gpu.h"

namespace qccl::bench::gpu {

struct Difference {
  std::size_t slice;
  std::size_t offset;  // in the slice
  std::byte found;
  std::byte expected;
  std::string text() const {
    return fmt::format("slice {}, byte {}: {:#04x} instead of {:#04x}", slice, offset, static_cast<int>(found),
                       static_cast<int>(expected));
  }
};

class Slab {
 public:
  Slab(Gpu& gpu, std::size_t slices, std::size_t slice_bytes)
      : gpu_(gpu),
        stride_((slice_bytes + kGap + kAlignment - 1) / kAlignment * kAlignment),
        expected_(slices * stride_),
        memory_(gpu.memory(std::max(expected_.size(), kAlignment))) {}

  std::byte* device_at(std::size_t slice) const { return memory_->data() + slice * stride_; }
  std::byte* host_at(std::size_t slice) { return expected_.data() + slice * stride_; }

  void poison() {
    std::fill(expected_.begin(), expected_.end(), std::byte{0xA5});
    upload();
  }
  // Writes the host's copy to the device.
  void upload() {
    if (!expected_.empty()) gpu_.upload(memory_->data(), expected_.data(), expected_.size());
  }

  // The first byte on the device that is not the host's. `plants` changes one byte after it was read.
  std::optional<Difference> compare(bool plants = false) {
    std::vector<std::byte> found(std::min(expected_.size(), kPiece));
    for (std::size_t begin = 0; begin < expected_.size(); begin += kPiece) {
      const std::size_t bytes = std::min(kPiece, expected_.size() - begin);
      gpu_.download(found.data(), memory_->data() + begin, bytes);
      if (plants && begin == 0) found[bytes / 2] ^= std::byte{1};
      if (std::memcmp(found.data(), expected_.data() + begin, bytes) == 0) continue;
      const auto at = static_cast<std::size_t>(
          std::mismatch(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(bytes), expected_.data() + begin)
              .first -
          found.begin());
      const std::size_t place = begin + at;
      return Difference{place / stride_, place % stride_, found[at], expected_[place]};
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kGap = 16;
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kPiece = std::size_t{64} << 20;

  Gpu& gpu_;
  const std::size_t stride_;
  std::vector<std::byte> expected_;
  std::unique_ptr<device::DeviceMemory> memory_;
};

}  // namespace qccl::bench::gpu
