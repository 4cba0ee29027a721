// Slices of h4.h, block by block, for an Encoder and a Decoder of single blocks. Per target.
//
// Encoder<bits>(seed):
//   sum(v)                         of |v| (h4_sum())
//   fourths(v, factor)             the sum of (v * factor)^4
//   encode(v, factor, row, codes)  transforms with the signs from `row` on and writes the codes; the moments
//   transform(v, factor, row, z)   only the coefficients
// Decoder<bits>(seed):
//   sums(codes, row, sums)         signs times the transformed levels, whole numbers
//   transform(sums, row)           transforms a second time
//   decode(codes, row, scale, finish, target)   a whole block that was transformed once; false: a result is NaN

#include <cstring>

#include "hwy/highway.h"
#include "kernels/h4/h4_reference.h"
#include "kernels/reduce/reduce_reference.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

using reference::H4BlockKind;
using reference::H4Moments;
using reference::H4Scale;
using reference::kH4LargestSum;

// ---- Encoding.

template <class Encoder>
float encode_twice(const Encoder& encoder, bool unbiased, const float* v, float sum, int row, std::byte* codes) {
  alignas(64) float z[kH4Block];
  encoder.transform(v, kH4LargestSum / sum, row, z);
  const float z_sum = encoder.sum(z);
  const H4Moments moments = encoder.encode(z, kH4LargestSum / z_sum, reference::h4_second_row(row), codes);
  const float z_scale = reference::h4_gain(unbiased, moments) * (z_sum / kH4LargestSum);
  return z_scale * (sum / kH4LargestSum) * (1.0f / 256);
}

// Encodes a block whose sum is in the normal range: writes the codes, returns the scale, negative if transformed twice.
template <class Encoder>
HWY_INLINE float encode_in_range(const Encoder& encoder, bool unbiased, const float* v, float sum, int row,
                                 std::byte* codes) {
  const float factor = kH4LargestSum / sum;
  const H4Moments moments = encoder.encode(v, factor, row, codes);
  const bool sparse = unbiased && reference::h4_is_sparse(Encoder::kBits, moments.squares);
  if (sparse || !reference::h4_error_within(Encoder::kBits, moments, 1.1)) {
    const bool kept = !sparse && reference::h4_error_within(Encoder::kBits, moments, 1.5) &&
                      !reference::h4_is_lattice(static_cast<float>(moments.squares), encoder.fourths(v, factor));
    if (!kept) return -encode_twice(encoder, unbiased, v, sum, row, codes);
  }
  return reference::h4_gain(unbiased, moments) * (sum / kH4LargestSum);
}

template <class Encoder>
float encode_out_of_range(const Encoder& encoder, bool unbiased, const float* v, float sum, int row, std::byte* codes) {
  const bool finite = std::all_of(v, v + kH4Block, [](float x) { return std::isfinite(x); });
  if (!finite || sum == 0) {
    std::fill_n(codes, h4_code_bytes(Encoder::kBits), std::byte{0});
    return finite ? 0.0f : canonical_nan();
  }
  const float factor = sum < 1 ? reference::kH4RaiseSmall : reference::kH4LowerLarge;
  alignas(64) float scaled[kH4Block];
  for (std::size_t i = 0; i < kH4Block; ++i) scaled[i] = v[i] * factor;
  const float scale = encode_in_range(encoder, unbiased, scaled, encoder.sum(scaled), row, codes);
  return scale / factor;
}

template <class Encoder>
HWY_INLINE std::uint16_t encode_block(const Encoder& encoder, bool unbiased, const float* v, float sum, int row,
                                      std::byte* codes) {
  const bool in_range = sum >= reference::kH4SmallSum && sum <= reference::kH4LargeSum;
  const float scale = HWY_LIKELY(in_range) ? encode_in_range(encoder, unbiased, v, sum, row, codes)
                                           : encode_out_of_range(encoder, unbiased, v, sum, row, codes);
  return reference::h4_scale_bits(scale);
}

// Computes each block's sum one block ahead, so that its chain of additions and the division that depends on it overlap
// with the encoding of the block before.
template <class Encoder>
void encode_slice(bool unbiased, H4Signs signs, const float* source, std::size_t n, std::byte* target) {
  if (n == 0) return;
  std::memcpy(target, &signs, kH4SliceHeaderBytes);
  std::byte* scales = target + kH4SliceHeaderBytes;
  std::byte* codes = scales + h4_block_count(n) * kH4ScaleBytes;
  const std::size_t whole = n / kH4Block;
  const Encoder encoder(signs.seed);
  std::uint32_t block = signs.first_block;
  const auto put = [&](const float* v, float sum) HWY_ATTR {
    const int row = reference::h4_first_row(signs.seed, block++);
    const std::uint16_t scale = encode_block(encoder, unbiased, v, sum, row, codes);
    std::memcpy(scales, &scale, sizeof(scale));
    scales += kH4ScaleBytes;
    codes += h4_code_bytes(Encoder::kBits);
  };
  alignas(64) float last[kH4Block] = {};
  std::copy(source + whole * kH4Block, source + n, last);
  const auto block_at = [&](std::size_t i) { return i < whole ? source + i * kH4Block : last; };
  float sum = encoder.sum(block_at(0));
  for (std::size_t i = 0; i < whole; ++i) {
    const float next = encoder.sum(block_at(i + 1));
    put(block_at(i), sum);
    sum = next;
  }
  if (n % kH4Block != 0) put(last, sum);
}

// ---- Decoding.

// The result from a decoded value: the value itself, or its sum with the addend.
struct H4Assign {
  HWY_INLINE float take(float y, std::size_t) const { return y; }
  HWY_INLINE H4Assign from(std::size_t) const { return *this; }
};
struct H4Add {
  const float* addend;
  HWY_INLINE float take(float y, std::size_t i) const { return reference::canonical(addend[i] + y); }
  HWY_INLINE H4Add from(std::size_t i) const { return {addend + i}; }
};

// Decodes `count` elements of any block.
template <class Decoder, class Finish>
void decode_any(const Decoder& decoder, const H4Scale& scale, const std::byte* codes, int row, std::size_t count,
                Finish finish, float* target) {
  alignas(64) float sums[kH4Block] = {};
  if (scale.kind == H4BlockKind::once) decoder.sums(codes, row, sums);
  if (scale.kind == H4BlockKind::twice) {
    decoder.sums(codes, reference::h4_second_row(row), sums);
    decoder.transform(sums, row);
  }
  for (std::size_t i = 0; i < count; ++i) target[i] = finish.take(reference::h4_scaled(scale, sums[i]), i);
}

template <class Decoder, class Finish>
void decode_slice(const std::byte* source, float* target, std::size_t n, Finish finish) {
  if (n == 0) return;
  H4Signs signs;
  std::memcpy(&signs, source, kH4SliceHeaderBytes);
  const std::byte* scales = source + kH4SliceHeaderBytes;
  const std::byte* codes = scales + h4_block_count(n) * kH4ScaleBytes;
  const Decoder decoder(signs.seed);
  bool canonical = true;
  for (std::size_t at = 0; at < n; at += kH4Block, scales += kH4ScaleBytes, codes += h4_code_bytes(Decoder::kBits)) {
    const int row = reference::h4_first_row(signs.seed, signs.first_block++);
    std::uint16_t bits = 0;
    std::memcpy(&bits, scales, sizeof(bits));
    const H4Scale scale = reference::h4_scale(bits);
    if (HWY_LIKELY(scale.kind == H4BlockKind::once && !scale.wide && n - at >= kH4Block)) {
      canonical &= decoder.decode(codes, row, scale.scale, finish.from(at), target + at);
    } else {
      decode_any(decoder, scale, codes, row, std::min(n - at, kH4Block), finish.from(at), target + at);
    }
  }
  if (canonical) return;
  for (std::size_t i = 0; i < n; ++i) target[i] = reference::canonical(target[i]);
}

// ---- Both, by the number of bits.

template <class Use>
HWY_INLINE void with_bits(int bits, Use use) {
  if (bits == 2) return use(std::integral_constant<int, 2>());
  if (bits == 3) return use(std::integral_constant<int, 3>());
  use(std::integral_constant<int, 4>());
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
