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
#include "kernels/block_int_codes-inl.h"
#include "kernels/block_int_scales-inl.h"
#include "kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::size_t kDecodeRun = 4096;  // elements after which sums are looked at for NaN, at least

HWY_INLINE float scale_at(const std::byte* stored, int bits) {
  std::uint16_t scale;
  std::memcpy(&scale, stored, sizeof(scale));
  return reference::read_scale(scale, bits);
}

// ---- Blocks of whole step units.

template <class Load>
class BlockDecoder {
 public:
  HWY_INLINE BlockDecoder(BlockIntFormat format, const std::byte* source, std::size_t n)
      : format_(format),
        scales_(source),
        codes_(source + block_int_scale_bytes(format, n)),
        load_(format.bits),
        loadable_end_(loadable_end(block_int_code_bytes(format, n), n)) {}

  template <class Finish>
  HWY_INLINE void decode(std::size_t begin, std::size_t end, float* target, Finish& finish) {
    const float scale = scale_at(scales_ + begin / format_.block_size * kBlockScaleBytes, format_.bits);
    const Values prepared = load_.prepare(scale);
    const std::size_t vectors_end = std::min(end, loadable_end_);
    std::size_t i = begin;
    for (; i + 4 * kRowLanes <= vectors_end; i += 4 * kRowLanes) {
      const Values y0 = load_.values(codes_, i, prepared);
      const Values y1 = load_.values(codes_, i + kRowLanes, prepared);
      const Values y2 = load_.values(codes_, i + 2 * kRowLanes, prepared);
      const Values y3 = load_.values(codes_, i + 3 * kRowLanes, prepared);
      finish.store(y0, y1, y2, y3, target, i);
    }
    for (; i + kRowLanes <= vectors_end; i += kRowLanes) {
      finish.store(load_.values(codes_, i, prepared), target, i);
    }
    if (i < end) decode_last(prepared, i, end, target, finish);
  }

 private:
  // End of the vectors whose load stays within the slice.
  std::size_t loadable_end(std::size_t code_bytes, std::size_t n) const {
    if (code_bytes < Load::kRead) return 0;
    const std::size_t last_begin = (code_bytes - Load::kRead) * 8 / static_cast<std::size_t>(format_.bits);
    return std::min(n, last_begin / kRowLanes * kRowLanes + kRowLanes);
  }

  // The elements behind loadable_end_, or fewer than a vector: from a copy of their codes.
  template <class Finish>
  HWY_INLINE void decode_last(Values prepared, std::size_t begin, std::size_t end, float* target, Finish& finish) {
    std::byte codes[8 * Load::kRead] = {};
    const auto bits = static_cast<std::size_t>(format_.bits);
    std::memcpy(codes, codes_ + begin * bits / 8, ((end - begin) * bits + 7) / 8);
    for (std::size_t at = 0; begin + at < end; at += kRowLanes) {
      alignas(64) float values[kRowLanes];
      hn::Store(load_.values(codes, at, prepared), ValueTag(), values);
      for (std::size_t i = at; i < at + kRowLanes && begin + i < end; ++i) {
        finish.store(values[i - at], target, begin + i);
      }
    }
  }

  const BlockIntFormat format_;
  const std::byte* const scales_;
  const std::byte* const codes_;
  const Load load_;
  const std::size_t loadable_end_;
};

template <class Load, class Finish>
HWY_INLINE void decode_blocks(BlockIntFormat format, const std::byte* source, std::size_t n, float* target,
                              Finish finish) {
  BlockDecoder<Load> decoder(format, source, n);
  for (std::size_t run = 0, block = 0; block < n; run = block) {
    for (; block < n && block < run + kDecodeRun; block += format.block_size) {
      decoder.decode(block, std::min<std::size_t>(n, block + format.block_size), target, finish);
    }
    finish.end(target, run, std::min(n, block));
  }
}

// ---- Blocks of any size: through a byte for each integer.

template <class Finish>
HWY_INLINE void decode_bytes(const std::uint8_t* codes, int bits, float scale, std::size_t begin, std::size_t end,
                             float* target, Finish& finish) {
  const IntegerTag d;
  const hn::Rebind<std::uint8_t, ValueTag> bytes;
  const Integers sign = hn::Set(d, 1 << (bits - 1));
  const Values scales = hn::Set(ValueTag(), scale);
  std::size_t i = begin;
  for (; i + kRowLanes <= end; i += kRowLanes) {
    const Integers code = hn::PromoteTo(d, hn::LoadU(bytes, codes + (i - begin)));
    const Integers integers = hn::Sub(hn::Xor(code, sign), sign);
    finish.store(hn::Mul(hn::ConvertTo(ValueTag(), integers), scales), target, i);
  }
  for (; i < end; ++i) {
    finish.store(reference::from_integer(reference::sign_extended(codes[i - begin], bits), scale), target, i);
  }
}

template <class Finish>
HWY_INLINE void decode_ragged(BlockIntFormat format, const std::byte* source, std::size_t n, float* target,
                              Finish finish) {
  const auto* const limit = reinterpret_cast<const std::uint8_t*>(source + block_int_encoded_bytes(format, n));
  const auto* packed = reinterpret_cast<const std::uint8_t*>(source + block_int_scale_bytes(format, n));
  alignas(64) std::uint8_t unpacked[kDecodeRun];
  for (std::size_t begin = 0; begin < n; begin += kDecodeRun) {
    const std::size_t end = std::min(n, begin + kDecodeRun);
    if (format.bits < 8) unpack_codes(format.bits, packed, limit, end - begin, unpacked);
    const std::uint8_t* const codes = format.bits < 8 ? unpacked : packed;
    for (std::size_t at = begin; at < end;) {
      const std::size_t block = at / format.block_size;
      const std::size_t stop = std::min<std::size_t>(end, (block + 1) * format.block_size);
      const float scale = scale_at(source + block * kBlockScaleBytes, format.bits);
      decode_bytes(codes + (at - begin), format.bits, scale, at, stop, target, finish);
      at = stop;
    }
    finish.end(target, begin, end);
    packed += kDecodeRun / 8 * static_cast<std::size_t>(format.bits);
  }
}

// ----

template <class Finish>
HWY_INLINE void decode_slice(BlockIntFormat format, const std::byte* source, std::size_t n, float* target,
                             Finish finish) {
  if (whole_units(format)) {
    if (format.bits == 8) return decode_blocks<IntByteLoad>(format, source, n, target, finish);
#if QCCL_HAVE_BIT_WINDOWS
    if (format.bits == 4) return decode_blocks<IntNibbleLoad>(format, source, n, target, finish);
    return decode_blocks<IntBitLoad>(format, source, n, target, finish);
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
