// block_int_decode() and block_int_decode_add() in vectors. Per target.

#if defined(QCCL_KERNELS_BLOCK_INT_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_BLOCK_INT_DECODE_INL_H_
#undef QCCL_KERNELS_BLOCK_INT_DECODE_INL_H_
#else
#define QCCL_KERNELS_BLOCK_INT_DECODE_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/block_int/block_int_scales-inl.h"
#include "kernels/lanes/codes-inl.h"
#include "kernels/lanes/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

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
  const RunDecoder<Load> decoder(Load(format.bits), format.bits, codes, block_int_code_bytes(format, n), n);
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
HWY_INLINE void decode_slice(BlockIntFormat format, const std::byte* source, std::size_t n, float* target,
                             Finish finish) {
  if (whole_units(format)) {
    if (format.bits == 8) return decode_blocks<ByteLoad<true>>(format, source, n, target, finish);
#if QCCL_HAVE_BIT_WINDOWS
    if (format.bits == 4) return decode_blocks<NibbleLoad<true>>(format, source, n, target, finish);
    return decode_blocks<BitLoad<true>>(format, source, n, target, finish);
#endif
  }
  decode_ragged(format, source, n, target, finish);
}

void block_int_decode(BlockIntFormat format, const std::byte* source, float* target, std::size_t n) {
  decode_slice(format, source, n, target, Assign());
}

void block_int_decode_add(BlockIntFormat format, const std::byte* source, const float* addend, float* target,
                          std::size_t n) {
  decode_slice(format, source, n, target, AddTo(addend));
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
