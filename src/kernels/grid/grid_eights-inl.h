// Eight integers of a block in as many bytes as each has bits, and back. Per target.

#include <array>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/grid/grid_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// Eight bytes, of which only the lower `width` bits are set, as a word.
#if HWY_ARCH_X86_64 && HWY_MAX_BYTES >= 32
constexpr std::array<std::uint64_t, 9> kMasks = {0,
                                                 0x0101010101010101u,
                                                 0x0303030303030303u,
                                                 0x0707070707070707u,
                                                 0x0F0F0F0F0F0F0F0Fu,
                                                 0x1F1F1F1F1F1F1F1Fu,
                                                 0x3F3F3F3F3F3F3F3Fu,
                                                 0x7F7F7F7F7F7F7F7Fu,
                                                 0xFFFFFFFFFFFFFFFFu};

// By the processor's pext and pdep.
class EightBits {
 public:
  explicit HWY_INLINE EightBits(int width) : mask_(kMasks[static_cast<std::size_t>(width)]) {}
  HWY_INLINE std::uint64_t close(std::uint64_t x) const { return _pext_u64(x, mask_); }
  HWY_INLINE std::uint64_t open(std::uint64_t x) const { return _pdep_u64(x, mask_); }

 private:
  const std::uint64_t mask_;
};
#else
using EightBits = grid::EightBits;
#endif

// ---- Blocks: grid_pack_bytes() is for widths up to 7, grid_pack_words() for larger ones. They write up to 16 bytes
// more than the block takes.

#if HWY_ARCH_X86_64 && HWY_MAX_BYTES >= 32

// How eights of a width are closed: neighbours become one, three times.
struct alignas(32) ClosingOperands {
  std::uint8_t bytes[32];     // factors 1, 2^w
  std::uint16_t words[16];    // factors 1, 2^2w
  std::uint32_t halves[8];    // shifts 32 - 4w, 0
  std::uint8_t gathered[32];  // indices of the bytes of two eights
};
constexpr std::array<ClosingOperands, 8> kClosing = [] {
  std::array<ClosingOperands, 8> all{};
  for (std::uint32_t width = 0; width < 8; ++width) {
    ClosingOperands& of = all[width];
    for (std::uint32_t i = 0; i < 32; ++i) of.bytes[i] = static_cast<std::uint8_t>(i % 2 == 0 ? 1 : 1u << width);
    for (std::uint32_t i = 0; i < 16; ++i) of.words[i] = static_cast<std::uint16_t>(i % 2 == 0 ? 1 : 1u << 2 * width);
    for (std::uint32_t i = 0; i < 8; ++i) of.halves[i] = i % 2 == 0 ? 32 - 4 * width : 0;
    for (std::uint32_t i = 0; i < 32; ++i) {
      const std::uint32_t at = i % 16;
      of.gathered[i] = static_cast<std::uint8_t>(at < width ? at : at < 2 * width ? at - width + 8 : 0x80);
    }
  }
  return all;
}();

HWY_INLINE __m256i load_operands(const void* from) { return _mm256_load_si256(static_cast<const __m256i*>(from)); }

// A block's eights of up to 7 bits.
HWY_INLINE __m256i closed_eights(hn::Vec<BlockBytes> packed, const ClosingOperands& of) {
  const __m256i words = _mm256_maddubs_epi16(load_operands(of.bytes), packed.raw);
  const auto fours = in_block_order({_mm256_madd_epi16(words, load_operands(of.words))});
  const __m256i halves = load_operands(of.halves);
  return _mm256_srlv_epi64(_mm256_sllv_epi32(fours.raw, halves), halves);
}

HWY_INLINE void store_half(std::uint8_t* to, __m128i half) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), half); }

HWY_INLINE void grid_pack_bytes(const GridIntegers& integers, int width, std::uint8_t* to) {
  const ClosingOperands& of = kClosing[static_cast<std::size_t>(width)];
  const __m256i eights = closed_eights(integers.only_bytes(0), of);
  const __m256i gathered = _mm256_shuffle_epi8(eights, load_operands(of.gathered));
  store_half(to, _mm256_castsi256_si128(gathered));
  store_half(to + 2 * width, _mm256_extracti128_si256(gathered, 1));
}

HWY_INLINE void grid_pack_words(const GridIntegers& integers, int width, std::uint8_t* to) {
  const __m256i lower = in_block_order(integers.lower_bytes(0)).raw;
  const __m256i upper = closed_eights(integers.upper_bytes(0), kClosing[static_cast<std::size_t>(width - 8)]);
  const __m256i even = _mm256_unpacklo_epi64(lower, upper), odd = _mm256_unpackhi_epi64(lower, upper);
  store_half(to, _mm256_castsi256_si128(even));
  store_half(to + width, _mm256_castsi256_si128(odd));
  store_half(to + 2 * width, _mm256_extracti128_si256(even, 1));
  store_half(to + 3 * width, _mm256_extracti128_si256(odd, 1));
}

#else

HWY_INLINE void grid_pack_bytes(const GridIntegers& integers, int width, std::uint8_t* to) {
  alignas(32) std::uint8_t bytes[kGridBlock];
  integers.store_bytes(bytes);
  const EightBits bits(width);
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kGridBlock; i += 8, to += width) {
    std::uint64_t eight;
    std::memcpy(&eight, bytes + i, 8);
    eight = bits.close(eight);
    std::memcpy(to, &eight, 8);
  }
}

HWY_INLINE void grid_pack_words(const GridIntegers& integers, int width, std::uint8_t* to) {
  const BlockBytes d;
  alignas(32) std::uint8_t lower[kGridBlock];
  alignas(32) std::uint8_t upper[kGridBlock];
  for (std::size_t i = 0, v = 0; i < kGridBlock; i += hn::MaxLanes(d), ++v) {
    hn::Store(in_block_order(integers.lower_bytes(v)), d, lower + i);
    hn::Store(in_block_order(integers.upper_bytes(v)), d, upper + i);
  }
  const EightBits bits(width - 8);
  for (std::size_t i = 0; i < kGridBlock; i += 8, to += width) {
    std::uint64_t eight;
    std::memcpy(&eight, upper + i, 8);
    eight = bits.close(eight);
    std::memcpy(to, lower + i, 8);
    std::memcpy(to + 8, &eight, 8);
  }
}

#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
