// Packs and unpacks topk.h's indices, 16 bits to 12 bits each, and reads chunks, in vectors. Per target.

#include "hwy/highway.h"
#include "kernels/lanes/value_lanes-inl.h"
#include "kernels/topk/topk_reference.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using topk::Index;

// Magnitudes are the bits of floats without signs: positive integers in the same order.
using MagnitudeTag = hn::CappedTag<std::int32_t, HWY_ARCH_X86 ? 16 : 4>;
using Magnitudes = hn::Vec<MagnitudeTag>;

HWY_INLINE Magnitudes magnitudes(const float* x) {
  const MagnitudeTag d;
  const hn::RebindToFloat<MagnitudeTag> floats;
  return hn::And(hn::BitCast(d, hn::LoadU(floats, x)), hn::Set(d, static_cast<std::int32_t>(topk::kMagnitudeBits)));
}

// Eight indices are four pairs of 24 bits: 12 bytes, processed in a vector of 16.
using PairTag = hn::CappedTag<std::uint32_t, 4>;
using PairBytes = hn::Repartition<std::uint8_t, PairTag>;
inline constexpr std::size_t kEight = 8;
inline constexpr std::size_t kEightBytes = 12;
inline constexpr std::size_t kLeastForEight = 11;  // indices that take at least 16 bytes

// Like topk::put_indices().
HWY_INLINE std::byte* pack_indices(const Index* indices, std::size_t k, std::byte* to) {
  const PairTag d;
  const auto close = hn::Load(PairBytes(), kCloseThrees);
  std::size_t i = 0;
  for (; i + kLeastForEight <= k; i += kEight, to += kEightBytes) {
    const auto apart = hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(indices + i));
    const auto upper = hn::And(hn::ShiftRight<4>(apart), hn::Set(d, 0xFFF000u));
    const auto pairs = hn::Or(hn::And(apart, hn::Set(d, 0xFFFu)), upper);
    const auto bytes = hn::TableLookupBytesOr0(hn::BitCast(PairBytes(), pairs), close);
    hn::StoreU(bytes, PairBytes(), reinterpret_cast<std::uint8_t*>(to));
  }
  return topk::put_indices(indices + i, k - i, to);
}

HWY_INLINE bool rises(const Index* indices, std::size_t k) {
  const hn::CappedTag<std::int16_t, HWY_ARCH_X86 ? 32 : 8> d;
  const auto load = [&](std::size_t i)
                        HWY_ATTR { return hn::LoadU(d, reinterpret_cast<const std::int16_t*>(indices + i)); };
  std::size_t i = 0;
  bool rising = true;
  for (; i + 1 + hn::Lanes(d) <= k; i += hn::Lanes(d)) rising &= hn::AllTrue(d, hn::Lt(load(i), load(i + 1)));
  for (; i + 1 < k; ++i) rising &= indices[i] < indices[i + 1];
  return rising;
}

// Like topk::get_indices().
HWY_INLINE bool unpack_indices(const std::byte* from, std::size_t n, topk::Chunk& chunk) {
  const PairTag d;
  const auto open = hn::Load(PairBytes(), kOpenThrees);
  std::size_t i = 0;
  for (; i + kLeastForEight <= chunk.k; i += kEight, from += kEightBytes) {
    const auto bytes = hn::LoadU(PairBytes(), reinterpret_cast<const std::uint8_t*>(from));
    const auto pairs = hn::BitCast(d, hn::TableLookupBytesOr0(bytes, open));
    const auto upper = hn::ShiftLeft<4>(hn::And(pairs, hn::Set(d, 0xFFF000u)));
    const auto apart = hn::Or(hn::And(pairs, hn::Set(d, 0xFFFu)), upper);
    hn::StoreU(apart, d, reinterpret_cast<std::uint32_t*>(chunk.indices.data() + i));
  }
  topk::get_indices(from, i, chunk);
  return chunk.indices[chunk.k - 1] < n && rises(chunk.indices.data(), chunk.k);
}

HWY_INLINE bool all_finite(const float* values, std::size_t k) {
  const MagnitudeTag d;
  Magnitudes all = hn::Zero(d);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= k; i += hn::Lanes(d)) all = hn::Max(all, magnitudes(values + i));
  auto most = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(d, all)));
  for (; i < k; ++i) most = std::max(most, topk::magnitude_of(values, i));
  return most < topk::kNotFinite;
}

// Like topk::get_chunk().
HWY_INLINE bool read_chunk(TopkFormat format, const std::byte* from, std::size_t n, topk::Chunk& chunk) {
  chunk.k = topk_kept(format, n);
  if (format.values != TopkValues::float32) {
    topk::get_codes(format, from, chunk);
  } else {
    std::memcpy(chunk.values.data(), from, chunk.k * sizeof(float));
    chunk.finite = all_finite(chunk.values.data(), chunk.k);
  }
  return unpack_indices(from + topk_value_bytes(format, chunk.k), n, chunk);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
