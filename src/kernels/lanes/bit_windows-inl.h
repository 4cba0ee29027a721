// Moves codes of 1..7 bits between packed bytes and vectors without a detour through memory, for vectors of at least 32
// bytes with per-lane shifts (AVX2, AVX-512). Per target. Other targets: pack-inl.h.

#include "hwy/highway.h"
#include "kernels/lanes/value_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

#undef QCCL_HAVE_BIT_WINDOWS
#if HWY_ARCH_X86 && HWY_MAX_BYTES >= 32
#define QCCL_HAVE_BIT_WINDOWS 1

using WindowBytes = hn::ScalableTag<std::uint8_t>;
using WindowWords = hn::ScalableTag<std::uint16_t>;
using WindowLongs = hn::ScalableTag<std::uint64_t>;

// Lanes of 64 bits with eight codes each become eight times `bits` bits, in three steps that each join neighbours:
// multiply-add of bytes, multiply-add of 16-bit words, and a shift of one 32-bit half onto the other.
class BitPacker {
 public:
  explicit HWY_INLINE BitPacker(int bits) : bytes_(sizeof(hn::Vec<WindowBytes>) / 8 * static_cast<std::size_t>(bits)) {
    const hn::Repartition<std::uint32_t, WindowBytes> pairs;
    mask_ = hn::Set(WindowBytes(), static_cast<std::uint8_t>((1 << bits) - 1));
    byte_factors_ = hn::BitCast(WindowBytes(), hn::Set(WindowWords(), static_cast<std::uint16_t>(1 | 1 << (bits + 8))));
    word_factors_ = hn::BitCast(WindowBytes(), hn::Set(pairs, 1u | 1u << (2 * bits + 16)));
    lower_ = hn::Set(WindowLongs(), (std::uint64_t{1} << (4 * bits)) - 1);
    shift_ = hn::Set(WindowLongs(), static_cast<std::uint64_t>(32 - 4 * bits));
    set_indices(bits);
  }

  // Bytes produced from one vector of codes.
  HWY_INLINE std::size_t bytes() const { return bytes_; }
  // store() writes bytes() bytes and at most this much more.
  static constexpr std::size_t kSlack = sizeof(hn::Vec<WindowBytes>);

  // Each byte has a code; the bits above it are ignored.
  HWY_INLINE void store(hn::Vec<WindowBytes> codes, std::byte* to) const {
    const auto clean = hn::And(codes, mask_);
#if HWY_MAX_BYTES == 64
    const __m512i words = _mm512_maddubs_epi16(byte_factors_.raw, clean.raw);
    const hn::Vec<WindowLongs> halves{_mm512_madd_epi16(words, word_factors_.raw)};
#else
    const __m256i words = _mm256_maddubs_epi16(byte_factors_.raw, clean.raw);
    const hn::Vec<WindowLongs> halves{_mm256_madd_epi16(words, word_factors_.raw)};
#endif
    const auto upper = hn::Shr(halves, shift_);
#if HWY_MAX_BYTES == 64
    const auto joined = hn::IfVecThenElse(lower_, halves, upper);  // bit by bit; on AVX2 it would be by bytes
#else
    const auto joined = hn::Or(hn::And(lower_, halves), hn::AndNot(lower_, upper));
#endif
    const auto blocks = hn::TableLookupBytesOr0(hn::BitCast(WindowBytes(), joined), indices_);
#if HWY_MAX_BYTES == 64
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(block_indices_.raw, blocks.raw));
#else
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(blocks.raw));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + bytes_ / 2), _mm256_extracti128_si256(blocks.raw, 1));
#endif
  }

 private:
  // For each block of 128 bits, the byte order that brings its two lanes' bytes together; then the same for the blocks
  // of a vector, in units of 16 bits.
  HWY_INLINE void set_indices(int bits) {
    alignas(16) std::uint8_t indices[16];
    for (int i = 0; i < 16; ++i) indices[i] = static_cast<std::uint8_t>(i < 2 * bits ? i / bits * 8 + i % bits : 0x80);
    indices_ = hn::LoadDup128(WindowBytes(), indices);
#if HWY_MAX_BYTES == 64
    alignas(64) std::uint16_t blocks[32];
    for (int i = 0; i < 32; ++i) blocks[i] = static_cast<std::uint16_t>(i < 4 * bits ? i / bits * 8 + i % bits : 0);
    block_indices_ = hn::Load(WindowWords(), blocks);
#endif
  }

  std::size_t bytes_;
  hn::Vec<WindowBytes> mask_, byte_factors_, word_factors_, indices_;
  hn::Vec<WindowLongs> lower_, shift_;
#if HWY_MAX_BYTES == 64
  hn::Vec<WindowWords> block_indices_;
#endif
};

// Brings one vector's codes to the top of 32 bits each, by a permutation of bytes and a per-lane shift, and shifts them
// down again.
class BitWindows {
 public:
  explicit HWY_INLINE BitWindows(int bits) : bits_(static_cast<std::size_t>(bits)) {
    constexpr int kLanes = HWY_MAX_BYTES / 4;
    constexpr int kUnit = HWY_MAX_BYTES == 64 ? 16 : 8;  // bits that the permutation moves together
    alignas(64) std::int32_t left[kLanes];
    alignas(64) std::uint8_t indices[HWY_MAX_BYTES];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int first_bit = lane * bits;
      left[lane] = 32 - bits - first_bit % kUnit;
      for (int unit = 0; unit < 32 / kUnit; ++unit) {
        const int index = first_bit / kUnit + unit;
        indices[lane * 4 + unit * kUnit / 8] = static_cast<std::uint8_t>(index);
        if (kUnit == 16) indices[lane * 4 + unit * 2 + 1] = 0;
      }
    }
    left_ = hn::Load(IntegerTag(), left);
    indices_ = hn::Load(WindowBytes(), indices);
    right_ = hn::Set(IntegerTag(), 32 - bits);
  }

  // load_*() read this much from the first byte of the vector's first code on.
  static constexpr std::size_t kRead = 16;

  // The codes from `index` on, a multiple of the number of lanes, as signed or unsigned integers.
  HWY_INLINE Integers load_signed(const std::byte* codes, std::size_t index) const {
    return hn::Shr(at_top(codes, index), right_);
  }
  HWY_INLINE Integers load_unsigned(const std::byte* codes, std::size_t index) const {
    const UnsignedTag d;
    return hn::BitCast(IntegerTag(), hn::Shr(hn::BitCast(d, at_top(codes, index)), hn::BitCast(d, right_)));
  }

 private:
  HWY_INLINE Integers at_top(const std::byte* codes, std::size_t index) const {
    const auto* from = reinterpret_cast<const __m128i*>(codes + index / 8 * bits_);
#if HWY_MAX_BYTES == 64
    const __m512i window = _mm512_permutexvar_epi16(indices_.raw, _mm512_castsi128_si512(_mm_loadu_si128(from)));
#else
    const __m256i window = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(from)), indices_.raw);
#endif
    return hn::Shl(Integers{window}, left_);
  }

  std::size_t bits_;
  Integers left_, right_;
  hn::Vec<WindowBytes> indices_;
};

#else
#define QCCL_HAVE_BIT_WINDOWS 0
#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
