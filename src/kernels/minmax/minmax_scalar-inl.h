// minmax.h for the target without vectors: the reference itself, code by code.

#include <cstring>

#include "kernels/lanes/random_reference.h"
#include "kernels/minmax/minmax_reference.h"

namespace qccl::kernels::HWY_NAMESPACE {

inline void put_code(std::byte* codes, std::size_t index, int bits, std::uint32_t code) {
  std::size_t position = index * static_cast<std::size_t>(bits);
  for (int left = bits; left > 0; ++position, --left, code >>= 1) {
    codes[position / 8] |= static_cast<std::byte>((code & 1u) << (position % 8));
  }
}

inline std::uint32_t get_code(const std::byte* codes, std::size_t index, int bits) {
  const std::size_t first = index * static_cast<std::size_t>(bits);
  std::uint32_t code = 0;
  for (int bit = 0; bit < bits; ++bit) {
    const std::size_t position = first + static_cast<std::size_t>(bit);
    code |= (std::to_integer<std::uint32_t>(codes[position / 8]) >> (position % 8) & 1u) << bit;
  }
  return code;
}

inline reference::BucketHeader header_of(const float* bucket, std::size_t n, float levels) {
  float minimum = bucket[0];
  float maximum = bucket[0];
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(bucket[i])) return reference::invalid_header();
    minimum = std::min(minimum, bucket[i]);
    maximum = std::max(maximum, bucket[i]);
  }
  return reference::make_header(minimum, maximum, levels);
}

void minmax_encode(MinmaxFormat format, const float* source, std::size_t n, std::byte* target,
                   const RandomStream* random) {
  const float levels = reference::largest_code(format.bits);
  std::byte* codes = target + minmax_header_bytes(format, n);
  std::fill_n(codes, minmax_code_bytes(format, n), std::byte{0});
  for (std::size_t begin = 0; begin < n; begin += format.bucket_size, target += kBucketHeaderBytes) {
    const std::size_t end = std::min<std::size_t>(n, begin + format.bucket_size);
    const reference::BucketHeader header = header_of(source + begin, end - begin, levels);
    std::memcpy(target, &header, sizeof(header));
    const reference::Quantizer quantizer = reference::make_quantizer(header, levels);
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t code =
          random == nullptr ? reference::encode_element(quantizer, source[i])
                            : reference::encode_element(quantizer, source[i],
                                                        reference::random_byte(*random, random->first_element + i));
      put_code(codes, i, format.bits, code);
    }
  }
}

// Calls use(index, decoded) for all elements in order.
template <class Use>
void decode_each(MinmaxFormat format, const std::byte* source, std::size_t n, Use use) {
  const float levels = reference::largest_code(format.bits);
  const std::byte* codes = source + minmax_header_bytes(format, n);
  for (std::size_t begin = 0; begin < n; begin += format.bucket_size, source += kBucketHeaderBytes) {
    const std::size_t end = std::min<std::size_t>(n, begin + format.bucket_size);
    reference::BucketHeader header;
    std::memcpy(&header, source, sizeof(header));
    const reference::Quantizer quantizer = reference::make_quantizer(header, levels);
    for (std::size_t i = begin; i < end; ++i) {
      use(i, reference::decode_element(quantizer, get_code(codes, i, format.bits)));
    }
  }
}

void minmax_decode(MinmaxFormat format, const std::byte* source, float* target, std::size_t n) {
  decode_each(format, source, n, [&](std::size_t i, float y) { target[i] = y; });
}

void minmax_decode_add(MinmaxFormat format, const std::byte* source, const float* addend, float* target,
                       std::size_t n) {
  decode_each(format, source, n, [&](std::size_t i, float y) { target[i] = reference::add_canonical(addend[i], y); });
}

}  // namespace qccl::kernels::HWY_NAMESPACE
