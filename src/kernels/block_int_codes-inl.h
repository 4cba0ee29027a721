// How block integers lie in memory, for whole vectors of them. Per target.
//
// Stores: store() one vector of bytes, an integer in each, from `to` on, which are bytes_per_vector() and at most
// kSlack more. Loads: prepare() a block's scale, then values() of one vector from `index` on, a multiple of its
// lanes; reads at most kRead bytes from the byte on where the first one begins.

#if defined(QCCL_KERNELS_BLOCK_INT_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_BLOCK_INT_CODES_INL_H_
#undef QCCL_KERNELS_BLOCK_INT_CODES_INL_H_
#else
#define QCCL_KERNELS_BLOCK_INT_CODES_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kernels/bit_windows-inl.h"
#include "kernels/block_int.h"
#include "kernels/byte_join-inl.h"
#include "kernels/value_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::size_t kStepUnit = 32;  // elements that a block has whole numbers of, to be encoded as vectors

// Groups of such blocks are whole bytes, and whole chunks of 64.
constexpr bool whole_units(BlockIntFormat format) {
  return format.block_size % (format.block_size <= 1024 ? kStepUnit : 2 * kStepUnit) == 0;
}

// Eight bits.
#if HWY_ARCH_X86
struct IntByteStore {
  explicit IntByteStore(int) {}
  static constexpr std::size_t kSlack = 0;
  HWY_INLINE std::size_t bytes_per_vector() const { return hn::Lanes(UnsignedBytes()); }
  HWY_INLINE void store(ByteCodesVector integers, std::byte* to) const {
    hn::StoreU(integers, UnsignedBytes(), reinterpret_cast<std::uint8_t*>(to));
  }
};
#endif

struct IntByteLoad {
  explicit IntByteLoad(int) {}
  static constexpr std::size_t kRead = sizeof(Values) / sizeof(float);
  HWY_INLINE Values prepare(float scale) const { return hn::Set(ValueTag(), scale); }
  HWY_INLINE Values values(const std::byte* codes, std::size_t index, Values scale) const {
    const hn::Rebind<std::int8_t, ValueTag> d;
    const auto bytes = hn::LoadU(d, reinterpret_cast<const std::int8_t*>(codes) + index);
    return hn::Mul(hn::ConvertTo(ValueTag(), hn::PromoteTo(IntegerTag(), bytes)), scale);
  }
};

#if QCCL_HAVE_BIT_WINDOWS
struct IntBitStore {
  explicit HWY_INLINE IntBitStore(int bits) : packer(bits) {}
  static constexpr std::size_t kSlack = BitPacker::kSlack;
  HWY_INLINE std::size_t bytes_per_vector() const { return packer.bytes(); }
  HWY_INLINE void store(ByteCodesVector integers, std::byte* to) const { packer.store(integers, to); }
  BitPacker packer;
};

struct IntBitLoad {
  explicit HWY_INLINE IntBitLoad(int bits) : windows(bits) {}
  static constexpr std::size_t kRead = BitWindows::kRead;
  HWY_INLINE Values prepare(float scale) const { return hn::Set(ValueTag(), scale); }
  HWY_INLINE Values values(const std::byte* codes, std::size_t index, Values scale) const {
    return hn::Mul(hn::ConvertTo(ValueTag(), windows.load_signed(codes, index)), scale);
  }
  BitWindows windows;
};

// Four bits: two integers a byte, the first in the lower half.
struct IntNibbleStore {
  explicit IntNibbleStore(int) {}
  static constexpr std::size_t kSlack = 0;
  HWY_INLINE std::size_t bytes_per_vector() const { return hn::Lanes(UnsignedBytes()) / 2; }
  HWY_INLINE void store(ByteCodesVector integers, std::byte* to) const {
    const auto low = hn::And(integers, hn::Set(UnsignedBytes(), 15));
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
// All sixteen values that an integer can have are one vector.
struct IntNibbleLoad {
  explicit IntNibbleLoad(int) {}
  static constexpr std::size_t kRead = 8;
  HWY_INLINE Values prepare(float scale) const {
    const Values integers{_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1)};
    return hn::Mul(integers, hn::Set(ValueTag(), scale));
  }
  HWY_INLINE Values values(const std::byte* codes, std::size_t index, Values table) const {
    const __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    std::int32_t lower, upper;
    std::memcpy(&lower, codes + index / 2, sizeof(lower));
    std::memcpy(&upper, codes + index / 2 + 4, sizeof(upper));
    const __m512i spread = _mm512_mask_broadcastd_epi32(_mm512_set1_epi32(lower), 0xFF00, _mm_cvtsi32_si128(upper));
    return Values{_mm512_permutexvar_ps(_mm512_srlv_epi32(spread, shifts), table.raw)};
  }
};
#else
struct IntNibbleLoad {
  explicit IntNibbleLoad(int) {}
  static constexpr std::size_t kRead = 4;
  HWY_INLINE Values prepare(float scale) const { return hn::Set(ValueTag(), scale); }
  HWY_INLINE Values values(const std::byte* codes, std::size_t index, Values scale) const {
    const IntegerTag d;
    std::int32_t packed;
    std::memcpy(&packed, codes + index / 2, sizeof(packed));
    const Integers shifts{_mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0)};
    const Integers integers = hn::ShiftRight<28>(hn::Shl(hn::Set(d, packed), shifts));
    return hn::Mul(hn::ConvertTo(ValueTag(), integers), scale);
  }
};
#endif
#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
