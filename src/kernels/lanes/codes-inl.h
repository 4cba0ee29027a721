// Whole vectors of codes of 1 to 8 and 16 bits, to and from memory. Per target.
//
// Stores: store() writes one vector of bytes, with a code in each, at `to`: bytes_per_vector() bytes and at most kSlack
// more. Loads: values() converts the codes of one vector, from `index` on, to values by a line, after prepare(line). It
// reads at most kRead bytes from the first code's first byte on; if codes are not whole bytes, `index` is a multiple of
// the number of lanes.

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/lanes/bit_windows-inl.h"
#include "kernels/lanes/value_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// prepare() and values() of a Load that has integers(): the codes of one vector, from `index` on.
template <class Load>
struct LoadIntegers {
  template <class Line>
  HWY_INLINE Line prepare(const Line& line) const {
    return line;
  }
  template <class Line>
  HWY_INLINE Values values(const std::byte* codes, std::size_t index, const Line& line) const {
    return line(static_cast<const Load*>(this)->integers(codes, index));
  }
};

// ---- A byte each.

#if HWY_ARCH_X86
struct ByteStore {
  explicit ByteStore(int) {}
  static constexpr std::size_t kSlack = 0;
  HWY_INLINE std::size_t bytes_per_vector() const { return hn::Lanes(UnsignedBytes()); }
  HWY_INLINE void store(ByteCodesVector codes, std::byte* to) const {
    hn::StoreU(codes, UnsignedBytes(), reinterpret_cast<std::uint8_t*>(to));
  }
};
#endif

template <bool kSigned>
struct ByteLoad : LoadIntegers<ByteLoad<kSigned>> {
  using Byte = std::conditional_t<kSigned, std::int8_t, std::uint8_t>;
  explicit ByteLoad(int) {}
  static constexpr std::size_t kRead = kValueLanes;
  HWY_INLINE Integers integers(const std::byte* codes, std::size_t index) const {
    const hn::Rebind<Byte, ValueTag> d;
    return hn::PromoteTo(IntegerTag(), hn::LoadU(d, reinterpret_cast<const Byte*>(codes) + index));
  }
};

// Narrower codes that pack-inl.h has spread over a byte each.
template <bool kSigned>
struct SpreadLoad : LoadIntegers<SpreadLoad<kSigned>> {
  explicit HWY_INLINE SpreadLoad(int bits) : sign(hn::Set(IntegerTag(), 1 << (bits - 1))) {}
  static constexpr std::size_t kRead = ByteLoad<false>::kRead;
  HWY_INLINE Integers integers(const std::byte* codes, std::size_t index) const {
    const Integers code = ByteLoad<false>(8).integers(codes, index);
    return kSigned ? hn::Sub(hn::Xor(code, sign), sign) : code;
  }
  Integers sign;
};

// ---- 16 bits each.

struct WordLoad : LoadIntegers<WordLoad> {
  explicit WordLoad(int) {}
  static constexpr std::size_t kRead = 2 * kValueLanes;
  HWY_INLINE Integers integers(const std::byte* codes, std::size_t index) const {
    const hn::Rebind<std::uint16_t, ValueTag> d;
    const auto words = hn::LoadU(d, reinterpret_cast<const std::uint16_t*>(codes) + index);
    return hn::PromoteTo(IntegerTag(), words);
  }
};

#if QCCL_HAVE_BIT_WINDOWS
// ---- 1 to 7 bits, without gaps.

struct BitStore {
  explicit HWY_INLINE BitStore(int bits) : packer(bits) {}
  static constexpr std::size_t kSlack = BitPacker::kSlack;
  HWY_INLINE std::size_t bytes_per_vector() const { return packer.bytes(); }
  HWY_INLINE void store(ByteCodesVector codes, std::byte* to) const { packer.store(codes, to); }
  BitPacker packer;
};

template <bool kSigned>
struct BitLoad : LoadIntegers<BitLoad<kSigned>> {
  explicit HWY_INLINE BitLoad(int bits) : windows(bits) {}
  static constexpr std::size_t kRead = BitWindows::kRead;
  HWY_INLINE Integers integers(const std::byte* codes, std::size_t index) const {
    return kSigned ? windows.load_signed(codes, index) : windows.load_unsigned(codes, index);
  }
  BitWindows windows;
};

// ---- 4 bits: two codes a byte, the first in the lower half.

struct NibbleStore {
  explicit NibbleStore(int) {}
  static constexpr std::size_t kSlack = 0;
  HWY_INLINE std::size_t bytes_per_vector() const { return hn::Lanes(UnsignedBytes()) / 2; }
  HWY_INLINE void store(ByteCodesVector codes, std::byte* to) const {
    const auto low = hn::And(codes, hn::Set(UnsignedBytes(), 15));
#if HWY_MAX_BYTES == 64
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_set1_epi16(0x1001), low.raw);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(pairs));
#else
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi16(0x1001), low.raw);
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(bytes));
#endif
  }
};

#if HWY_MAX_BYTES == 64
// One vector holds all sixteen possible values of a code.
template <bool kSigned>
struct NibbleLoad {
  explicit NibbleLoad(int) {}
  static constexpr std::size_t kRead = 8;
  HWY_INLINE Integers integers(const std::byte* codes, std::size_t index) const {
    const IntegerTag d;
    const Integers code = hn::And(at_bottom(codes, index), hn::Set(d, 15));
    return kSigned ? hn::Sub(hn::Xor(code, hn::Set(d, 8)), hn::Set(d, 8)) : code;
  }
  template <class Line>
  HWY_INLINE Values prepare(const Line& line) const {
    const int sign = kSigned ? -16 : 0;
    const Integers all{_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, sign + 8, sign + 9, sign + 10, sign + 11, sign + 12,
                                         sign + 13, sign + 14, sign + 15)};
    return line(all);
  }
  HWY_INLINE Values values(const std::byte* codes, std::size_t index, Values table) const {
    return Values{_mm512_permutexvar_ps(at_bottom(codes, index).raw, table.raw)};
  }

 private:
  // Each lane has its code at the bottom, with the codes that follow above it.
  HWY_INLINE Integers at_bottom(const std::byte* codes, std::size_t index) const {
    const __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    std::int32_t lower, upper;
    std::memcpy(&lower, codes + index / 2, sizeof(lower));
    std::memcpy(&upper, codes + index / 2 + 4, sizeof(upper));
    const __m512i spread = _mm512_mask_broadcastd_epi32(_mm512_set1_epi32(lower), 0xFF00, _mm_cvtsi32_si128(upper));
    return Integers{_mm512_srlv_epi32(spread, shifts)};
  }
};
#else
template <bool kSigned>
struct NibbleLoad : LoadIntegers<NibbleLoad<kSigned>> {
  explicit NibbleLoad(int) {}
  static constexpr std::size_t kRead = 4;
  HWY_INLINE Integers integers(const std::byte* codes, std::size_t index) const {
    std::int32_t packed;
    std::memcpy(&packed, codes + index / 2, sizeof(packed));
    const Integers shifts{_mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0)};
    const Integers at_top = hn::Shl(hn::Set(IntegerTag(), packed), shifts);
    if (kSigned) return hn::ShiftRight<28>(at_top);
    return hn::BitCast(IntegerTag(), hn::ShiftRight<28>(hn::BitCast(UnsignedTag(), at_top)));
  }
};
#endif
#endif

// ---- Decoding runs of elements that share a line.

template <class Load>
class RunDecoder {
 public:
  // `n` codes of `bits` in memory of exactly `code_bytes`.
  HWY_INLINE RunDecoder(const Load& load, int bits, const std::byte* codes, std::size_t code_bytes, std::size_t n)
      : load_(load), bits_(static_cast<std::size_t>(bits)), codes_(codes) {
    if (code_bytes < Load::kRead) return;
    const std::size_t last_begin = (code_bytes - Load::kRead) * 8 / bits_;
    loadable_end_ = std::min(n, last_begin / kValueLanes * kValueLanes + kValueLanes);
  }

  template <class Line, class Finish>
  HWY_INLINE void decode(const Line& line, std::size_t begin, std::size_t end, float* target, Finish& finish) const {
    const auto prepared = load_.prepare(line);
    const std::size_t vectors_end = std::min(end, loadable_end_);
    std::size_t i = begin;
    for (; i + 4 * kValueLanes <= vectors_end; i += 4 * kValueLanes) {
      const Values y0 = load_.values(codes_, i, prepared);
      const Values y1 = load_.values(codes_, i + kValueLanes, prepared);
      const Values y2 = load_.values(codes_, i + 2 * kValueLanes, prepared);
      const Values y3 = load_.values(codes_, i + 3 * kValueLanes, prepared);
      finish.store(y0, y1, y2, y3, target, i);
    }
    for (; i + kValueLanes <= vectors_end; i += kValueLanes) {
      finish.store(load_.values(codes_, i, prepared), target, i);
    }
    each_code(i, end, [&](std::size_t at, Integers integers) HWY_ATTR {
      alignas(64) float values[kValueLanes];
      hn::Store(line(integers), ValueTag(), values);
      for (std::size_t lane = 0; lane < kValueLanes && at + lane < end; ++lane) {
        finish.store(values[lane], target, at + lane);
      }
    });
  }

  // Calls use(index, integers) for every vector of codes in [begin, end); the last vector may contain further codes.
  template <class Use>
  HWY_INLINE void each_code(std::size_t begin, std::size_t end, Use use) const {
    while (begin < end && begin + kValueLanes <= loadable_end_) {
      use(begin, load_.integers(codes_, begin));
      begin += kValueLanes;
    }
    for (; begin < end; begin += kValueLanes) {
      std::byte padded[Load::kRead + 2 * kValueLanes] = {};
      const std::size_t count = std::min(kValueLanes, end - begin);
      std::memcpy(padded, codes_ + begin * bits_ / 8, (count * bits_ + 7) / 8);
      use(begin, load_.integers(padded, 0));
    }
  }

 private:
  const Load load_;
  const std::size_t bits_;
  const std::byte* const codes_;
  std::size_t loadable_end_ = 0;  // end of the vectors that can be loaded without leaving the memory
};

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
