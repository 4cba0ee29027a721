#include "kernels/block_int/block_int.h"

#include <algorithm>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/block_int/block_int.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/block_int/block_int_reference.h"
#include "kernels/reduce/reduce_reference.h"
#include "kernels/simd_dispatch.h"
#if !QCCL_SCALAR
#include "kernels/block_int/block_int_encode-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

#if QCCL_SCALAR

inline std::uint32_t scale_bits_of(const float* block, std::size_t n, int bits) {
  std::uint32_t magnitude = 0;
  for (std::size_t i = 0; i < n; ++i) magnitude = std::max(magnitude, reference::magnitude_bits(block[i]));
  return reference::make_scale_bits(magnitude, bits);
}

void block_int_encode(BlockIntFormat format, const float* source, std::size_t n, std::byte* target,
                      const RandomStream* random) {
  const std::int32_t largest = reference::largest_integer(format.bits);
  BitWriter codes(target + block_int_scale_bytes(format, n), format.bits);
  for (std::size_t begin = 0; begin < n; begin += format.block_size, target += kBlockScaleBytes) {
    const std::size_t end = std::min<std::size_t>(n, begin + format.block_size);
    const std::uint32_t scale = scale_bits_of(source + begin, end - begin, format.bits);
    const auto stored = static_cast<std::uint16_t>(scale >> 16);
    std::memcpy(target, &stored, sizeof(stored));
    const bool valid = scale != reference::kInvalidScaleBits;
    const float inverse = 1.0f / std::bit_cast<float>(scale);
    for (std::size_t i = begin; i < end; ++i) {
      std::int32_t integer = 0;
      if (valid && random == nullptr) integer = reference::to_integer(source[i], inverse, largest);
      if (valid && random != nullptr) {
        const std::uint8_t byte = reference::random_byte(*random, random->first_element + i);
        integer = reference::to_integer(source[i], inverse, largest, byte);
      }
      codes.put(static_cast<std::uint32_t>(integer) & ((1u << format.bits) - 1));
    }
  }
  codes.end();
}

void block_int_decode(BlockIntFormat format, const std::byte* source, const float* addend, float* target,
                      std::size_t n) {
  BitReader codes(source + block_int_scale_bytes(format, n), format.bits);
  for (std::size_t begin = 0; begin < n; begin += format.block_size, source += kBlockScaleBytes) {
    const std::size_t end = std::min<std::size_t>(n, begin + format.block_size);
    std::uint16_t stored;
    std::memcpy(&stored, source, sizeof(stored));
    const float scale = reference::read_scale(stored, format.bits);
    for (std::size_t i = begin; i < end; ++i) {
      const auto code = static_cast<std::uint32_t>(codes.get());
      const float y = reference::from_integer(reference::sign_extended(code, format.bits), scale);
      reference::finish(y, addend, target, i);
    }
  }
}

#else

// ---- Decoding; block_int_encode-inl.h encodes.

inline constexpr std::size_t kDecodeRun = 4096;  // elements after which sums are checked for NaN, at least

// integer * scale, which is exact.
struct ScaleLine {
  Values scale;
  // Reads a block's stored scale.
  HWY_INLINE ScaleLine(const std::byte* stored, int bits) {
    std::uint16_t bits_of_scale;
    std::memcpy(&bits_of_scale, stored, sizeof(bits_of_scale));
    scale = hn::Set(ValueTag(), reference::read_scale(bits_of_scale, bits));
  }
  HWY_INLINE Values operator()(Integers integers) const { return hn::Mul(hn::ConvertTo(ValueTag(), integers), scale); }
};

// Blocks of whole step units: decodes codes where they lie.
template <class Load, class Finish>
HWY_INLINE void decode_blocks(BlockIntFormat format, const std::byte* source, std::size_t n, float* target,
                              Finish finish) {
  const std::byte* const codes = source + block_int_scale_bytes(format, n);
  const RunDecoder<Load> decoder(Load(format.bits), format.bits, codes, packed_bytes(format.bits, n), n);
  for (std::size_t run = 0, block = 0; block < n; run = block) {
    for (; block < n && block < run + kDecodeRun; block += format.block_size, source += kBlockScaleBytes) {
      const std::size_t end = std::min<std::size_t>(n, block + format.block_size);
      decoder.decode(ScaleLine(source, format.bits), block, end, target, finish);
    }
    finish.end(target, run, std::min(n, block));
  }
}

// Blocks of any size: unpacks each integer to a byte first.
template <class Finish>
HWY_INLINE void decode_ragged(BlockIntFormat format, const std::byte* source, std::size_t n, float* target,
                              Finish finish) {
  const auto* const limit = reinterpret_cast<const std::uint8_t*>(source + block_int_encoded_bytes(format, n));
  const auto* packed = reinterpret_cast<const std::uint8_t*>(source + block_int_scale_bytes(format, n));
  alignas(64) std::uint8_t spread[kDecodeRun];
  for (std::size_t begin = 0; begin < n; begin += kDecodeRun) {
    const std::size_t count = std::min(kDecodeRun, n - begin);
    if (format.bits < 8) unpack_codes(format.bits, packed, limit, count, spread);
    const auto* const codes = reinterpret_cast<const std::byte*>(format.bits < 8 ? spread : packed);
    const RunDecoder<SpreadLoad<true>> decoder(SpreadLoad<true>(format.bits), 8, codes, count, count);
    Finish from_here = finish.from(begin);
    for (std::size_t at = 0; at < count;) {
      const std::size_t block = (begin + at) / format.block_size;
      const std::size_t end = std::min(count, (block + 1) * format.block_size - begin);
      const ScaleLine line(source + block * kBlockScaleBytes, format.bits);
      decoder.decode(line, at, end, target + begin, from_here);
      at = end;
    }
    from_here.end(target + begin, 0, count);
    packed += kDecodeRun / 8 * static_cast<std::size_t>(format.bits);
  }
}

template <class Finish>
HWY_NOINLINE void decode_slice(BlockIntFormat format, const std::byte* source, const float* addend, float* target,
                               std::size_t n) {
  const Finish finish(addend);
  if (whole_units(format)) {
    if (format.bits == 8) return decode_blocks<ByteLoad<true>>(format, source, n, target, finish);
#if QCCL_HAVE_BIT_WINDOWS
    if (format.bits == 4) return decode_blocks<NibbleLoad<true>>(format, source, n, target, finish);
    return decode_blocks<BitLoad<true>>(format, source, n, target, finish);
#endif
  }
  decode_ragged(format, source, n, target, finish);
}

void block_int_decode(BlockIntFormat format, const std::byte* source, const float* addend, float* target,
                      std::size_t n) {
  if (addend == nullptr) return decode_slice<Assign>(format, source, addend, target, n);
  decode_slice<AddTo>(format, source, addend, target, n);
}

#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {

QCCL_KERNEL(void, block_int_encode,
            (BlockIntFormat format, const float* source, std::size_t n, std::byte* target, const RandomStream* random),
            (format, source, n, target, random))
QCCL_KERNEL(void, block_int_decode,
            (BlockIntFormat format, const std::byte* source, const float* addend, float* target, std::size_t n),
            (format, source, addend, target, n))

}  // namespace qccl::kernels
#endif  // HWY_ONCE
