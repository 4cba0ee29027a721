// Signs, codes and sums of h4.h in vectors. Per target, x86.

#if defined(QCCL_KERNELS_H4_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_H4_CODES_INL_H_
#undef QCCL_KERNELS_H4_CODES_INL_H_
#else
#define QCCL_KERNELS_H4_CODES_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/h4/h4_reference.h"
#include "kernels/h4/hadamard-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// Calls use(row, part, signs) for all rows of a seed's signs, which are 0 or -1: the lanes of `part` of the row.
template <class Use>
HWY_INLINE void each_sign_row(std::uint32_t seed, Use use) {
  const hn::ScalableTag<std::uint32_t> d;
  alignas(64) std::uint32_t words[3 * 16];
  for (std::uint32_t i = 0; i < 3 * 16; i += static_cast<std::uint32_t>(hn::Lanes(d))) {
    const auto index = hn::Add(hn::Iota(d, i + 1), hn::Zero(d));
    auto x = hn::Add(hn::Set(d, seed), hn::Mul(index, hn::Set(d, reference::kH4Golden)));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, 0x7FEB352Du));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(d, 0x846CA68Bu));
    hn::Store(hn::Xor(x, hn::ShiftRight<16>(x)), d, words + i);
  }
  for (int row = 0; row < reference::kH4SignRows; ++row) {
    for (std::size_t part = 0; part < kParts; ++part) {
      const auto bits = hn::Load(d, words + 16 * (row / 32) + part * hn::Lanes(d));
      const auto highest = hn::BitCast(DwordTag(), hn::ShiftLeftSame(bits, 31 - row % 32));
      use(row, part, hn::ShiftRight<31>(highest));
    }
  }
}

// A block's codes, one per byte: 64 of each field, as if fields had two bits (h4_reference.h).
struct CodeBytes {
  Bytes at[4][kParts];
};

// Shifts the bits of bytes; the caller masks those that come from the neighbouring byte.
template <int kShift>
HWY_INLINE Bytes shift_bits(Bytes v) {
  const hn::Repartition<std::uint16_t, ByteTag> d;
  if constexpr (kShift >= 0) return hn::BitCast(ByteTag(), hn::ShiftLeft<kShift>(hn::BitCast(d, v)));
  if constexpr (kShift < 0) return hn::BitCast(ByteTag(), hn::ShiftRight<-kShift>(hn::BitCast(d, v)));
}

template <int kMask, int kShift>
HWY_INLINE Bytes bits_of(Bytes v) {
  return hn::And(shift_bits<kShift>(v), hn::Set(ByteTag(), kMask));
}

HWY_INLINE Bytes load_bytes(const std::byte* from) {
  return hn::LoadU(ByteTag(), reinterpret_cast<const std::uint8_t*>(from));
}
HWY_INLINE void store_bytes(Bytes v, std::byte* to) { hn::StoreU(v, ByteTag(), reinterpret_cast<std::uint8_t*>(to)); }

// The sign bits of three-bit codes: 32 bytes, in which each part of 64 bytes contributes one half of the bits.
HWY_INLINE void store_sign_plane(const Bytes (&parts)[kParts], std::byte* to) {
#if HWY_MAX_BYTES == 64
  const hn::Half<ByteTag> half;
  const auto upper = hn::BitCast(half, hn::ShiftLeft<4>(hn::BitCast(hn::Repartition<std::uint16_t, decltype(half)>(),
                                                                    hn::UpperHalf(half, parts[0]))));
  hn::StoreU(hn::Or(hn::LowerHalf(half, parts[0]), upper), half, reinterpret_cast<std::uint8_t*>(to));
#else
  for (std::size_t i = 0; i < kParts / 2; ++i) {
    store_bytes(hn::Or(parts[i], shift_bits<4>(parts[i + kParts / 2])), to + i * HWY_MAX_BYTES);
  }
#endif
}
HWY_INLINE void load_sign_plane(const std::byte* from, Bytes (&parts)[kParts]) {
#if HWY_MAX_BYTES == 64
  const hn::Half<ByteTag> half;
  const auto lower = hn::LoadU(half, reinterpret_cast<const std::uint8_t*>(from));
  const auto upper =
      hn::BitCast(half, hn::ShiftRight<4>(hn::BitCast(hn::Repartition<std::uint16_t, decltype(half)>(), lower)));
  parts[0] = hn::Combine(ByteTag(), upper, lower);
#else
  for (std::size_t i = 0; i < kParts / 2; ++i) {
    parts[i] = load_bytes(from + i * HWY_MAX_BYTES);
    parts[i + kParts / 2] = shift_bits<-4>(parts[i]);
  }
#endif
}

template <int kBits>
HWY_INLINE void store_codes(const CodeBytes& codes, std::byte* to) {
  Bytes signs[kParts];
  HWY_UNROLL(4)
  for (std::size_t part = 0; part < kParts; ++part) {
    const auto field = [&](int f) HWY_ATTR { return codes.at[f][part]; };
    std::byte* at = to + part * HWY_MAX_BYTES;
    if constexpr (kBits == 4) {
      store_bytes(hn::Or(field(0), shift_bits<4>(field(1))), at);
      store_bytes(hn::Or(field(2), shift_bits<4>(field(3))), at + 64);
      continue;
    }
    const Bytes lower = hn::Or(bits_of<0x03, 0>(field(0)), bits_of<0x0C, 2>(field(1)));
    const Bytes upper = hn::Or(bits_of<0x30, 4>(field(2)), bits_of<0xC0, 6>(field(3)));
    store_bytes(hn::Or(lower, upper), at);
    if constexpr (kBits == 3) {
      const Bytes first = hn::Or(bits_of<1, -2>(field(0)), bits_of<2, -1>(field(1)));
      signs[part] = hn::Or(first, hn::Or(bits_of<4, 0>(field(2)), bits_of<8, 1>(field(3))));
    }
  }
  if constexpr (kBits == 3) store_sign_plane(signs, to + 64);
}

template <int kBits>
HWY_INLINE void load_codes(const std::byte* from, CodeBytes& codes) {
  Bytes signs[kParts];
  if constexpr (kBits == 3) load_sign_plane(from + 64, signs);
  HWY_UNROLL(4)
  for (std::size_t part = 0; part < kParts; ++part) {
    const Bytes lower = load_bytes(from + part * HWY_MAX_BYTES);
    if constexpr (kBits == 4) {
      const Bytes upper = load_bytes(from + part * HWY_MAX_BYTES + 64);
      codes.at[0][part] = bits_of<15, 0>(lower);
      codes.at[1][part] = bits_of<15, -4>(lower);
      codes.at[2][part] = bits_of<15, 0>(upper);
      codes.at[3][part] = bits_of<15, -4>(upper);
      continue;
    }
    codes.at[0][part] = bits_of<3, 0>(lower);
    codes.at[1][part] = bits_of<3, -2>(lower);
    codes.at[2][part] = bits_of<3, -4>(lower);
    codes.at[3][part] = bits_of<3, -6>(lower);
    if constexpr (kBits == 3) {
      codes.at[0][part] = hn::Or(codes.at[0][part], bits_of<4, 2>(signs[part]));
      codes.at[1][part] = hn::Or(codes.at[1][part], bits_of<4, 1>(signs[part]));
      codes.at[2][part] = hn::Or(codes.at[2][part], bits_of<4, 0>(signs[part]));
      codes.at[3][part] = hn::Or(codes.at[3][part], bits_of<4, -1>(signs[part]));
    }
  }
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
