// The random bytes of a lane's octets (the rule: lanes/random.h). Four elements share a word.
#pragma once

#include "kernels/device/octet.h"
#include "kernels/device/slice_job.h"

namespace qccl::kernels::device {

// Of eight elements from `first` of the tensor on.
QCCL_HD_COLD inline Octet<std::uint32_t> random_octet(RandomStream stream, std::uint64_t first) {
  Octet<std::uint32_t> bytes;
  for (int i = 0; i < kOctet; ++i) bytes.of[i] = reference::random_byte(stream, first + static_cast<unsigned>(i));
  return bytes;
}

class RandomOctets {
 public:
  QCCL_HD RandomOctets(const SliceJob& job, const Runs& runs)
      : job_(job), first_(job.random.first_element + runs.first), step_(runs.step) {
    if (!job.format.stochastic) return;
    const std::uint64_t last = first_ + (kHeld - 1) * step_ + kOctet - 1;
    is_even_ = first_ % 4 == 0 && first_ >> 34 == last >> 34;
    keys_ = reference::random_keys(job.random.key, static_cast<std::uint32_t>(first_ >> 34));
    offset_ = reference::stratum_offset(job.random.rank, job.random.world);
  }

  QCCL_HD Octet<std::uint32_t> octet(int k) const {
    const std::uint64_t first = first_ + static_cast<std::uint32_t>(k) * step_;
    if (!is_even_) return random_octet(job_.random, first);
    Octet<std::uint32_t> bytes;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; i += 4) {
      const std::uint32_t word = reference::random_word(keys_, static_cast<std::uint32_t>((first + i) / 4));
      QCCL_UNROLL
      for (int j = 0; j < 4; ++j) bytes.of[i + j] = ((word >> (8 * j)) + offset_) & 0xFFu;
    }
    return bytes;
  }

 private:
  const SliceJob& job_;
  const std::uint64_t first_;
  const std::uint32_t step_;
  bool is_even_ = false;  // the octets begin with a word, and all words have the same keys
  reference::RandomKeys keys_{};
  std::uint32_t offset_ = 0;
};

}  // namespace qccl::kernels::device
