// lossless.h for the target without vectors: the reference itself, block by block.

#include <cstring>

#include "kernels/lossless/lossless_reference.h"
#include "kernels/reduce/reduce_reference.h"

namespace qccl::kernels::HWY_NAMESPACE {

using lossless::kBlock;

std::size_t lossless_encode(const float* source, std::size_t n, std::byte* target) {
  std::byte* to = target;
  for (std::size_t begin = 0; begin < n; begin += kBlock) {
    std::uint32_t words[kBlock];
    const std::size_t count = std::min(kBlock, n - begin);
    std::memcpy(words, source + begin, count * sizeof(float));
    to = reference::lossless_encode_block(words, count, to);
  }
  return static_cast<std::size_t>(to - target);
}

// Calls use(begin, words, count) for each block in order.
template <class Use>
bool decode_blocks(const std::byte* source, std::size_t bytes, std::size_t n, Use use) {
  reference::LosslessReader reader(source, bytes);
  for (std::size_t begin = 0; begin < n && !reader.failed(); begin += kBlock) {
    std::uint32_t words[kBlock];
    const std::size_t count = std::min(kBlock, n - begin);
    reference::lossless_decode_block(reader, words, count);
    use(begin, words, count);
  }
  return !reader.failed() && reader.left() == 0;
}

bool lossless_decode(const std::byte* source, std::size_t bytes, float* target, std::size_t n) {
  return decode_blocks(source, bytes, n, [&](std::size_t begin, const std::uint32_t* words, std::size_t count) {
    std::memcpy(target + begin, words, count * sizeof(float));
  });
}

bool lossless_decode_add(const std::byte* source, std::size_t bytes, const float* addend, float* target,
                         std::size_t n) {
  return decode_blocks(source, bytes, n, [&](std::size_t begin, const std::uint32_t* words, std::size_t count) {
    reference::reduce<float>(ReduceOp::sum, target + begin, addend + begin, words, 0, count);
  });
}

}  // namespace qccl::kernels::HWY_NAMESPACE
