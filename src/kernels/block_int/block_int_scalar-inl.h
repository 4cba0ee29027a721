// block_int.h for the target without vectors: the reference itself, code by code.

#include <algorithm>
#include <cstring>

#include "kernels/block_int/block_int_reference.h"
#include "kernels/lanes/random_reference.h"

namespace qccl::kernels::HWY_NAMESPACE {

inline void put_integer(std::byte* codes, std::size_t index, int bits, std::int32_t integer) {
  auto code = static_cast<std::uint32_t>(integer);
  std::size_t position = index * static_cast<std::size_t>(bits);
  for (int left = bits; left > 0; ++position, --left, code >>= 1) {
    codes[position / 8] |= static_cast<std::byte>((code & 1u) << (position % 8));
  }
}

inline std::int32_t get_integer(const std::byte* codes, std::size_t index, int bits) {
  const std::size_t first = index * static_cast<std::size_t>(bits);
  std::uint32_t code = 0;
  for (int bit = 0; bit < bits; ++bit) {
    const std::size_t position = first + static_cast<std::size_t>(bit);
    code |= (std::to_integer<std::uint32_t>(codes[position / 8]) >> (position % 8) & 1u) << bit;
  }
  return reference::sign_extended(code, bits);
}

inline std::uint32_t scale_bits_of(const float* block, std::size_t n, int bits) {
  std::uint32_t magnitude = 0;
  for (std::size_t i = 0; i < n; ++i) magnitude = std::max(magnitude, reference::magnitude_bits(block[i]));
  return reference::make_scale_bits(magnitude, bits);
}

void block_int_encode(BlockIntFormat format, const float* source, std::size_t n, std::byte* target,
                      const RandomStream* random) {
  const std::int32_t largest = reference::largest_integer(format.bits);
  std::byte* codes = target + block_int_scale_bytes(format, n);
  std::fill_n(codes, block_int_code_bytes(format, n), std::byte{0});
  for (std::size_t begin = 0; begin < n; begin += format.block_size, target += kBlockScaleBytes) {
    const std::size_t end = std::min<std::size_t>(n, begin + format.block_size);
    const std::uint32_t scale = scale_bits_of(source + begin, end - begin, format.bits);
    const auto stored = static_cast<std::uint16_t>(scale >> 16);
    std::memcpy(target, &stored, sizeof(stored));
    if (scale == reference::kInvalidScaleBits) continue;
    const float inverse = 1.0f / std::bit_cast<float>(scale);
    for (std::size_t i = begin; i < end; ++i) {
      put_integer(codes, i, format.bits,
                  random == nullptr
                      ? reference::to_integer(source[i], inverse, largest)
                      : reference::to_integer(source[i], inverse, largest,
                                              reference::random_byte(*random, random->first_element + i)));
    }
  }
}

// Calls use(index, decoded) for all elements in order.
template <class Use>
void decode_each(BlockIntFormat format, const std::byte* source, std::size_t n, Use use) {
  const std::byte* codes = source + block_int_scale_bytes(format, n);
  for (std::size_t begin = 0; begin < n; begin += format.block_size, source += kBlockScaleBytes) {
    const std::size_t end = std::min<std::size_t>(n, begin + format.block_size);
    std::uint16_t stored;
    std::memcpy(&stored, source, sizeof(stored));
    const float scale = reference::read_scale(stored, format.bits);
    for (std::size_t i = begin; i < end; ++i) {
      use(i, reference::from_integer(get_integer(codes, i, format.bits), scale));
    }
  }
}

void block_int_decode(BlockIntFormat format, const std::byte* source, float* target, std::size_t n) {
  decode_each(format, source, n, [&](std::size_t i, float y) { target[i] = y; });
}

void block_int_decode_add(BlockIntFormat format, const std::byte* source, const float* addend, float* target,
                          std::size_t n) {
  decode_each(format, source, n, [&](std::size_t i, float y) {
    const float sum = addend[i] + y;
    target[i] = sum != sum ? canonical_nan() : sum;
  });
}

}  // namespace qccl::kernels::HWY_NAMESPACE
