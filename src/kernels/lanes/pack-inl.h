// Codes of 1..7 bits, one in each byte, to and from packed bytes. Per target.
//
// Eight codes are one 64-bit lane. Packing closes the gaps between neighbours in three steps, each doubling the length
// of the runs without gaps: 8 -> 16 -> 32 -> 64 bits (fewer if the runs are already whole bytes). A byte shuffle within
// each 128-bit block then brings the whole bytes together. Unpacking is the reverse.

#include <array>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/lanes/bit_stream.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of whole 128-bit blocks, whose number storing knows at compile time.
#if HWY_ARCH_X86
using ByteTag = hn::ScalableTag<std::uint8_t>;
#else
using ByteTag = hn::CappedTag<std::uint8_t, 16>;
#endif
using BlockTag = hn::CappedTag<std::uint8_t, 16>;
using PackTag = hn::Repartition<std::uint64_t, ByteTag>;
using ByteVector = hn::Vec<ByteTag>;
using PackVector = hn::Vec<PackTag>;

inline constexpr std::size_t kCodesPerVector = HWY_ARCH_X86 ? HWY_MAX_BYTES : 16;
inline constexpr std::size_t kBlocksPerVector = kCodesPerVector / 16;
// Number of bytes that one vector's load or store may touch beyond its packed bytes.
inline constexpr std::size_t kPackSlack = kCodesPerVector;

// The lowest `bits` bits of each `lane_bits` bits.
constexpr std::uint64_t low_bits(int lane_bits, int bits) {
  std::uint64_t mask = 0;
  for (int at = 0; at < 64; at += lane_bits) mask |= ((std::uint64_t{1} << bits) - 1) << at;
  return mask;
}

// Steps until runs are whole bytes: 4 bits after one, 2 after two, all others after three.
constexpr int pack_steps(int bits) { return bits == 4 ? 1 : bits == 2 ? 2 : 3; }

// For one block: the byte order that brings its two lanes' whole bytes together.
template <int kBits>
constexpr std::array<std::uint8_t, 16> gather_indices() {
  constexpr int kStep = pack_steps(kBits);
  constexpr int kRunBytes = kStep == 3 ? kBits : 1;
  constexpr int kLaneBytes = 1 << kStep;
  std::array<std::uint8_t, 16> indices{};
  for (int i = 0; i < 16; ++i) {
    const bool used = i < 2 * kBits;
    indices[i] = used ? static_cast<std::uint8_t>(i / kRunBytes * kLaneBytes + i % kRunBytes) : 0x80;
  }
  return indices;
}

// The reverse: the source of each byte of a block, 0x80 for none.
template <int kBits>
constexpr std::array<std::uint8_t, 16> scatter_indices() {
  constexpr std::array<std::uint8_t, 16> kGather = gather_indices<kBits>();
  std::array<std::uint8_t, 16> indices{};
  indices.fill(0x80);
  for (int i = 0; i < 2 * kBits; ++i) indices[kGather[i]] = static_cast<std::uint8_t>(i);
  return indices;
}

// In lanes of `kLaneBits` bits whose halves start with a run of `kRunBits` each, brings the upper run down to the lower
// one.
template <int kLaneBits, int kRunBits>
HWY_INLINE PackVector close_gaps(PackVector v) {
  const PackTag d;
  const PackVector lower = hn::And(v, hn::Set(d, low_bits(kLaneBits, kRunBits)));
  const PackVector upper = hn::Set(d, low_bits(kLaneBits, kRunBits) << kRunBits);
  return hn::OrAnd(lower, hn::ShiftRight<kLaneBits / 2 - kRunBits>(v), upper);
}

// The reverse.
template <int kLaneBits, int kRunBits>
HWY_INLINE PackVector open_gaps(PackVector v) {
  const PackTag d;
  const PackVector lower = hn::And(v, hn::Set(d, low_bits(kLaneBits, kRunBits)));
  const PackVector upper = hn::Set(d, low_bits(kLaneBits, kRunBits) << (kLaneBits / 2));
  return hn::OrAnd(lower, hn::ShiftLeft<kLaneBits / 2 - kRunBits>(v), upper);
}

template <int kBits>
HWY_INLINE PackVector pack_lanes(PackVector v) {
  v = close_gaps<16, kBits>(v);
  if constexpr (pack_steps(kBits) >= 2) v = close_gaps<32, 2 * kBits>(v);
  if constexpr (pack_steps(kBits) >= 3) v = close_gaps<64, 4 * kBits>(v);
  return v;
}

template <int kBits>
HWY_INLINE PackVector unpack_lanes(PackVector v) {
  if constexpr (pack_steps(kBits) >= 3) v = open_gaps<64, 4 * kBits>(v);
  if constexpr (pack_steps(kBits) >= 2) v = open_gaps<32, 2 * kBits>(v);
  return open_gaps<16, kBits>(v);
}

#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64
// Brings 2 * kBits bytes from each of four blocks together, in units of 16 bits, and the reverse.
template <int kBits>
struct BlockOrder {
  alignas(64) std::uint16_t gather[32] = {};
  alignas(64) std::uint16_t scatter[32] = {};
  constexpr BlockOrder() {
    for (int i = 0; i < 32; ++i) {
      gather[i] = static_cast<std::uint16_t>(i < 4 * kBits ? i / kBits * 8 + i % kBits : 0);
      scatter[i] = static_cast<std::uint16_t>(i % 8 < kBits ? i / 8 * kBits + i % 8 : 0);
    }
  }
};
#endif

// Stores the first 2 * kBits bytes of every block one after another, and up to kPackSlack bytes after them.
template <int kBits>
HWY_INLINE void store_blocks(ByteVector v, std::uint8_t* to) {
#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64
  alignas(64) static constexpr BlockOrder<kBits> kOrder;
  const __m512i order = _mm512_load_si512(kOrder.gather);
  _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, v.raw));
#elif HWY_ARCH_X86 && HWY_MAX_BYTES == 32
  const BlockTag block;
  hn::StoreU(hn::LowerHalf(block, v), block, to);
  hn::StoreU(hn::UpperHalf(block, v), block, to + 2 * kBits);
#else
  hn::StoreU(v, BlockTag(), to);
#endif
}

// The reverse; reads up to kPackSlack bytes more.
template <int kBits>
HWY_INLINE ByteVector load_blocks(const std::uint8_t* from) {
#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64
  alignas(64) static constexpr BlockOrder<kBits> kOrder;
  const __m512i order = _mm512_load_si512(kOrder.scatter);
  return ByteVector{_mm512_permutexvar_epi16(order, _mm512_loadu_si512(from))};
#elif HWY_ARCH_X86 && HWY_MAX_BYTES == 32
  const BlockTag block;
  return hn::Combine(ByteTag(), hn::LoadU(block, from + 2 * kBits), hn::LoadU(block, from));
#else
  return hn::LoadU(BlockTag(), from);
#endif
}

// Packs one vector of codes to 2 * kBits bytes a block.
template <int kBits>
HWY_INLINE void pack_vector(const std::uint8_t* codes, std::uint8_t* to) {
  const ByteTag bytes;
  const ByteVector v = hn::LoadU(bytes, codes);
  if constexpr (kBits == 1) {
    hn::StoreMaskBits(bytes, hn::Ne(v, hn::Zero(bytes)), to);
  } else {
    alignas(16) static constexpr std::array<std::uint8_t, 16> kGather = gather_indices<kBits>();
    const ByteVector packed = hn::BitCast(bytes, pack_lanes<kBits>(hn::BitCast(PackTag(), v)));
    store_blocks<kBits>(hn::TableLookupBytesOr0(packed, hn::LoadDup128(bytes, kGather.data())), to);
  }
}

template <int kBits>
HWY_INLINE void unpack_vector(const std::uint8_t* from, std::uint8_t* codes) {
  const ByteTag bytes;
  if constexpr (kBits == 1) {
    hn::StoreU(hn::IfThenElseZero(hn::LoadMaskBits(bytes, from), hn::Set(bytes, 1)), bytes, codes);
  } else {
    alignas(16) static constexpr std::array<std::uint8_t, 16> kScatter = scatter_indices<kBits>();
    const ByteVector spread = hn::TableLookupBytesOr0(load_blocks<kBits>(from), hn::LoadDup128(bytes, kScatter.data()));
    hn::StoreU(hn::BitCast(bytes, unpack_lanes<kBits>(hn::BitCast(PackTag(), spread))), bytes, codes);
  }
}

template <int kBits>
HWY_INLINE void pack_with(const std::uint8_t* codes, std::size_t n, std::uint8_t* to, const std::uint8_t* limit) {
  constexpr std::size_t kVectorBytes = kCodesPerVector / 8 * kBits;
  std::size_t i = 0;
  for (; i + kCodesPerVector <= n && static_cast<std::size_t>(limit - to) >= kPackSlack; i += kCodesPerVector) {
    pack_vector<kBits>(codes + i, to);
    to += kVectorBytes;
  }
  for (; i < n; i += kCodesPerVector) {
    alignas(64) std::uint8_t packed[kCodesPerVector];
    const std::size_t left = packed_bytes(kBits, n - i);
    pack_vector<kBits>(codes + i, packed);
    std::memcpy(to, packed, left < kVectorBytes ? left : kVectorBytes);
    to += kVectorBytes;
  }
}

template <int kBits>
HWY_INLINE void unpack_with(const std::uint8_t* from, const std::uint8_t* limit, std::size_t n, std::uint8_t* codes) {
  constexpr std::size_t kVectorBytes = kCodesPerVector / 8 * kBits;
  std::size_t i = 0;
  for (; i < n && static_cast<std::size_t>(limit - from) >= kPackSlack; i += kCodesPerVector) {
    unpack_vector<kBits>(from, codes + i);
    from += kVectorBytes;
  }
  for (; i < n; i += kCodesPerVector) {
    alignas(64) std::uint8_t packed[kCodesPerVector] = {};
    const std::size_t left = packed_bytes(kBits, n - i);
    std::memcpy(packed, from, left < kVectorBytes ? left : kVectorBytes);
    unpack_vector<kBits>(packed, codes + i);
    from += kVectorBytes;
  }
}

// Calls use(std::integral_constant<int, bits>()).
template <class Use>
HWY_INLINE void with_code_bits(int bits, Use use) {
  switch (bits) {
    case 1: return use(std::integral_constant<int, 1>());
    case 2: return use(std::integral_constant<int, 2>());
    case 3: return use(std::integral_constant<int, 3>());
    case 4: return use(std::integral_constant<int, 4>());
    case 5: return use(std::integral_constant<int, 5>());
    case 6: return use(std::integral_constant<int, 6>());
    case 7: return use(std::integral_constant<int, 7>());
  }
}

// Packs `n` codes of `bits` (1..7) bits into packed_bytes(bits, n) bytes at `to`. `codes` are readable and 0 from n up
// to a multiple of kCodesPerVector. Bytes after the packed ones, up to `limit`, may be overwritten.
inline void pack_codes(int bits, const std::uint8_t* codes, std::size_t n, std::uint8_t* to,
                       const std::uint8_t* limit) {
  with_code_bits(bits, [=](auto b) HWY_ATTR { pack_with<decltype(b)::value>(codes, n, to, limit); });
}

// The reverse. `codes` is writable up to a multiple of kCodesPerVector; `from` is readable up to `limit`.
inline void unpack_codes(int bits, const std::uint8_t* from, const std::uint8_t* limit, std::size_t n,
                         std::uint8_t* codes) {
  with_code_bits(bits, [=](auto b) HWY_ATTR { unpack_with<decltype(b)::value>(from, limit, n, codes); });
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
