// Sizes of formats with buckets and codes without gaps; such codes one at a time, for references and slow widths.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"

namespace qccl::kernels {

QCCL_HD constexpr std::size_t bucket_count(std::uint32_t bucket_size, std::size_t n) {
  return n / bucket_size + (n % bucket_size != 0 ? 1 : 0);
}
// ceil(n * bits / 8) without overflow in n * bits.
QCCL_HD constexpr std::size_t packed_bytes(int bits, std::size_t n) {
  const auto width = static_cast<std::size_t>(bits);
  return n / 8 * width + (n % 8 * width + 7) / 8;
}

// Writes codes of any width below 57 bits to bytes, lowest bits first.
class BitWriter {
 public:
  BitWriter(std::byte* to, int bits) : to_(to), bits_(bits) {}
  void put(std::uint64_t code) {
    pending_ |= code << filled_;
    for (filled_ += bits_; filled_ >= 8; filled_ -= 8, pending_ >>= 8) *to_++ = static_cast<std::byte>(pending_);
  }
  void end() {
    if (filled_ > 0) *to_++ = static_cast<std::byte>(pending_);
  }

 private:
  std::byte* to_;
  const int bits_;
  std::uint64_t pending_ = 0;
  int filled_ = 0;
};

// The reverse. Reads no byte before it needs it.
class BitReader {
 public:
  BitReader(const std::byte* from, int bits) : from_(from), bits_(bits) {}
  std::uint64_t get() {
    for (; filled_ < bits_; filled_ += 8) pending_ |= std::to_integer<std::uint64_t>(*from_++) << filled_;
    const std::uint64_t code = pending_ & ((std::uint64_t{1} << bits_) - 1);
    pending_ >>= bits_;
    filled_ -= bits_;
    return code;
  }

 private:
  const std::byte* from_;
  const int bits_;
  std::uint64_t pending_ = 0;
  int filled_ = 0;
};

}  // namespace qccl::kernels
