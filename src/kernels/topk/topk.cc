#include "kernels/topk/topk.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/topk/topk.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"
#include "kernels/topk/topk_reference.h"
#if !QCCL_SCALAR
#include "kernels/lanes/value_lanes-inl.h"
#include "kernels/topk/topk_indices-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

#if QCCL_SCALAR

void topk_encode(TopkFormat format, const float* source, std::size_t n, std::byte* target) {
  for (std::size_t begin = 0; begin < n; begin += kTopkChunk) {
    target = reference::topk_encode_chunk(format, source + begin, std::min(kTopkChunk, n - begin), target);
  }
}

bool topk_decode(TopkFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  return topk::decode(format, source, addend, {target, n}, reference::topk_get_chunk);
}

#else

// Nothing is sorted. A chunk's candidates are the elements that reach a floor: a value a little below the smallest that
// the previous chunk sent. If that gives too few or too many, the floor becomes one that k of the maxima of groups of
// elements reach, so that at least k elements do. The k largest candidates are found by counting how many reach a
// magnitude, alternately at the middle of the remaining bracket and where an even spread would have it. The candidates
// are few, twice k for typical data; if they are many (ties, or the largest all in few groups) counting covers the
// whole chunk.

using TopTag = hn::CappedTag<std::int16_t, HWY_ARCH_X86 ? 32 : 8>;  // their upper halves

// Chunks are processed in whole runs, filled up with zeros, which lose against every element before them.
inline constexpr std::size_t kRun = 256;
inline constexpr std::size_t kMostFold = 16;  // vectors in a group: each lane's maximum is one group's
static_assert(kRun % (kMostFold * hn::MaxLanes(MagnitudeTag())) == 0 && kTopkChunk % kRun == 0);

// ---- A floor that at least k elements reach.

// Upper halves of the magnitudes' maxima over groups of `fold` elements.
struct GroupTops {
  alignas(64) std::int16_t tops[kTopkChunk + hn::MaxLanes(TopTag())];
  std::size_t count = 0;
  std::int32_t most = 0;

  // Uses groups as large as possible with at least four times k of them.
  HWY_INLINE void take(const float* x, std::size_t n, std::size_t k) {
    std::size_t fold = kMostFold;
    while (fold > 1 && n / fold < 4 * k) fold /= 2;
    const MagnitudeTag d;
    const hn::Rebind<std::int16_t, MagnitudeTag> halves;
    const std::size_t lanes = hn::Lanes(d);
    Magnitudes all = hn::Zero(d);
    count = 0;
    for (std::size_t i = 0; i < n; count += lanes) {
      Magnitudes group = hn::Zero(d);
      for (const std::size_t end = i + fold * lanes; i < end; i += lanes) group = hn::Max(group, magnitudes(x + i));
      all = hn::Max(all, group);
      hn::StoreU(hn::DemoteTo(halves, hn::ShiftRight<16>(group)), halves, tops + count);
    }
    std::fill_n(tops + count, hn::Lanes(TopTag()), std::int16_t{-1});
    most = hn::GetLane(hn::MaxOfLanes(d, all)) >> 16;
  }
  HWY_INLINE bool finite() const { return most < static_cast<std::int32_t>(topk::kNotFinite >> 16); }

  HWY_INLINE std::size_t reaching(std::int32_t floor) const {
    const TopTag d;
    const auto below = hn::Set(d, static_cast<std::int16_t>(floor - 1));
    std::size_t found = 0;
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
      found += hn::CountTrue(d, hn::Gt(hn::Load(d, tops + i), below));
    }
    return found;
  }
  // The highest magnitude that k groups reach, or a little less.
  HWY_INLINE std::int32_t floor_of(std::size_t k) const {
    std::int32_t low = most, high = most + 1;
    for (std::int32_t step = 0x40; low > 0 && reaching(low) < k; step *= 2) {
      high = low;
      low = std::max(0, low - step);
    }
    while (high - low > 1) {
      const std::int32_t middle = low + (high - low) / 2;
      const std::size_t found = reaching(middle);
      (found >= k ? low : high) = middle;
      if (found >= k && found <= k + k / 4) break;
    }
    return low << 16;
  }
};

// ---- Candidates.

// One bit for each lane.
HWY_INLINE std::uint64_t bits_of(hn::Mask<MagnitudeTag> mask) {
#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64
  return mask.raw;
#elif HWY_ARCH_X86 && HWY_MAX_BYTES == 32
  return static_cast<std::uint64_t>(_mm256_movemask_ps(_mm256_castsi256_ps(mask.raw)));
#elif HWY_ARCH_X86
  return static_cast<std::uint64_t>(_mm_movemask_ps(_mm_castsi128_ps(mask.raw)));
#else
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(MagnitudeTag(), mask, bytes);
  return bytes[0];
#endif
}

// A bit for each of 64 elements that exceeds a magnitude.
template <std::size_t... kVector>
HWY_INLINE std::uint64_t marks(const float* x, Magnitudes below, std::index_sequence<kVector...>) {
  constexpr std::size_t kLanes = hn::MaxLanes(MagnitudeTag());
  return (... | (bits_of(hn::Gt(magnitudes(x + kVector * kLanes), below)) << (kVector * kLanes)));
}
HWY_INLINE std::uint64_t marks(const float* x, Magnitudes below) {
  return marks(x, below, std::make_index_sequence<64 / hn::MaxLanes(MagnitudeTag())>());
}

// Number of elements, among n in whole words of marks, that have at least a magnitude.
HWY_INLINE std::size_t count_reaching(const float* x, std::size_t n, std::int32_t floor) {
  const MagnitudeTag d;
  const Magnitudes below = hn::Set(d, floor - 1);
  std::size_t found = 0;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) found += hn::CountTrue(d, hn::Gt(magnitudes(x + i), below));
  return found;
}

// Index of the lowest bit, 63 if there is none; clears the bit.
HWY_INLINE std::uint64_t take_lowest(std::uint64_t& word) {
  const auto at = static_cast<std::uint64_t>(std::countr_zero(word | std::uint64_t{1} << 63));
  word &= word - 1;
  return at;
}

// Writes the indices of the four lowest bits.
HWY_INLINE void put_four(std::uint64_t& word, std::uint64_t first, Index* to) {
  std::uint64_t four = first * 0x0001000100010001u;
  four += take_lowest(word);
  four += take_lowest(word) << 16;
  four += take_lowest(word) << 32;
  four += take_lowest(word) << 48;
  std::memcpy(to, &four, sizeof(four));
}

// Writes the indices of a word's bits; `first` is that of the lowest. Always writes at least four: their number is hard
// to predict, and a mispredicted branch costs more.
HWY_INLINE Index* put_marked(std::uint64_t word, std::size_t first, Index* to) {
  const int found = std::popcount(word);
  put_four(word, first, to);
  for (int i = 4; i < found; i += 4) put_four(word, first, to + i);
  return to + found;
}

struct Candidates {
  static constexpr std::size_t kLanes = hn::MaxLanes(MagnitudeTag());
  std::size_t count = 0;
  Index indices[kTopkChunk + kLanes];
  alignas(64) float values[kTopkChunk + kLanes];

  // Takes the elements among n that reach `floor`; false if they are fewer than `least` or more than `most`.
  HWY_INLINE bool take(const float* x, std::size_t n, std::int32_t floor, std::size_t least, std::size_t most) {
    const Magnitudes below = hn::Set(MagnitudeTag(), floor - 1);
    Index* to = indices;
    for (std::size_t i = 0; i < n && to <= indices + most; i += 64) {
      for (std::size_t at = 0; at < 64; at += 16) hwy::Prefetch(x + i + kFetchAhead + at);
      to = put_marked(marks(x + i, below), i, to);
    }
    count = static_cast<std::size_t>(to - indices);
    if (count < least || count > most) return false;
    for (std::size_t i = 0; i < count; ++i) values[i] = x[indices[i]];
    std::fill_n(values + count, kLanes, values[0]);
    return true;
  }
  HWY_INLINE std::size_t reaching(std::int32_t floor) const {
    const MagnitudeTag d;
    const Magnitudes below = hn::Set(d, floor - 1);
    std::size_t found = 0, i = 0;
    for (; i < count; i += kLanes) found += hn::CountTrue(d, hn::Gt(magnitudes(values + i), below));
    const auto first = static_cast<std::int32_t>(topk::magnitude_of(values, 0));
    return first >= floor ? found - (i - count) : found;
  }
  // The smallest and the largest magnitude.
  HWY_INLINE std::pair<std::int32_t, std::int32_t> extremes() const {
    const MagnitudeTag d;
    Magnitudes smallest = magnitudes(values), largest = smallest;
    for (std::size_t i = kLanes; i < count; i += kLanes) {
      const Magnitudes each = magnitudes(values + i);
      smallest = hn::Min(smallest, each);
      largest = hn::Max(largest, each);
    }
    return {hn::GetLane(hn::MinOfLanes(d, smallest)), hn::GetLane(hn::MaxOfLanes(d, largest))};
  }
  // Moves the indices of candidates above `bound` to the front of `indices` and their values to `above`. Faster than a
  // loop over elements only if compressing vectors is an instruction.
  HWY_INLINE void take_above(std::int32_t bound, float* above) {
    const MagnitudeTag d;
    const hn::RebindToFloat<MagnitudeTag> floats;
    const hn::Rebind<Index, MagnitudeTag> narrow;
    const Magnitudes most = hn::Set(d, bound);
    std::size_t taken = 0;
    for (std::size_t i = 0; i < count; i += kLanes) {
      const auto is_above = hn::Gt(magnitudes(values + i), most);
      hn::StoreU(hn::Compress(hn::Load(floats, values + i), hn::RebindMask(floats, is_above)), floats, above + taken);
      const Magnitudes wide = hn::PromoteTo(d, hn::LoadU(narrow, indices + i));
      hn::StoreU(hn::DemoteTo(narrow, hn::Compress(wide, is_above)), narrow, indices + taken);
      taken += hn::CountTrue(d, is_above);
    }
  }
};

// Selects exactly k elements: all above `bound`, and the first `ties` that equal it.
struct Cut {
  std::int32_t bound = 0;
  std::size_t ties = 0;
};

// Two magnitudes, and the number of elements that reach each.
struct Bracket {
  std::int32_t low, high;
  std::size_t reach_low, reach_high;

  // The magnitude between them that k elements would reach if they were spread evenly.
  HWY_INLINE std::int32_t in_proportion(std::size_t k) const {
    const auto width = static_cast<std::uint64_t>(high - low);
    const std::uint64_t up = width * (reach_low - k) / (reach_low - reach_high);
    return low + static_cast<std::int32_t>(std::clamp<std::uint64_t>(up, 1, width - 1));
  }
};

// At least k elements reach the lower magnitude, fewer reach the higher. `reaching(magnitude)` counts them.
template <class Reaching>
HWY_INLINE Cut cut_at(std::size_t k, Bracket bracket, Reaching reaching) {
  for (bool in_proportion = true; bracket.reach_low > k && bracket.high - bracket.low > 1;
       in_proportion = !in_proportion) {
    const std::int32_t middle =
        in_proportion ? bracket.in_proportion(k) : bracket.low + (bracket.high - bracket.low) / 2;
    const std::size_t found = reaching(middle);
    if (found >= k) {
      bracket.low = middle;
      bracket.reach_low = found;
    } else {
      bracket.high = middle;
      bracket.reach_high = found;
    }
  }
  return bracket.reach_low == k ? Cut{bracket.low - 1, 0} : Cut{bracket.low, k - bracket.reach_high};
}

// ---- Whole chunks.

class TopkEncoder {
 public:
  explicit HWY_INLINE TopkEncoder(TopkFormat format) : format_(format) {}

  // Encodes a chunk of n elements, readable and filled up with 0 to a whole run; returns the end of its output.
  std::byte* encode(const float* x, std::size_t n, std::byte* to) {
    const std::size_t k = topk_kept(format_, n);
    const std::size_t whole = (n + kRun - 1) / kRun * kRun;
    if (!choose(x, whole, k)) return topk::put_invalid(format_, k, to);
    return pack_indices(candidates_.indices, k, topk::put_values(format_, values_, k, to));
  }

 private:
  // The guess is an eighth of a binade below the smallest magnitude that the previous chunk sent: twice as many
  // elements of normally distributed data reach it, and with k = 41 too few do in one chunk of a thousand.
  static constexpr std::int32_t kBelow = 1 << 20;

  // Puts indices and values of the k largest of n elements to the front; false if an element is not finite.
  HWY_INLINE bool choose(const float* x, std::size_t n, std::size_t k) {
    const std::size_t most = std::min(kTopkChunk, 4 * k + 64);
    if (guess_ <= 0 || !candidates_.take(x, n, guess_, k, most)) {
      groups_.take(x, n, k);
      if (!groups_.finite()) return false;
      const std::int32_t floor = groups_.floor_of(k);
      if (!candidates_.take(x, n, floor, k, most)) {
        choose_of_all(x, n, k, floor);
        return true;
      }
    }
    const auto [smallest, largest] = candidates_.extremes();
    if (static_cast<std::uint32_t>(largest) >= topk::kNotFinite) return false;
    const auto reaching = [&](std::int32_t floor) HWY_ATTR { return candidates_.reaching(floor); };
    const Cut cut = cut_at(k, {smallest, largest + 1, candidates_.count, 0}, reaching);
    guess_ = cut.bound - kBelow;
    keep(cut);
    return true;
  }

  HWY_INLINE void keep(Cut cut) {
    if (HWY_ARCH_X86 && HWY_MAX_BYTES == 64 && cut.ties == 0) return candidates_.take_above(cut.bound, values_);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < candidates_.count; ++i) {
      const auto magnitude = static_cast<std::int32_t>(topk::magnitude_of(candidates_.values, i));
      candidates_.indices[kept] = candidates_.indices[i];
      values_[kept] = candidates_.values[i];
      if (magnitude == cut.bound && cut.ties > 0) {
        --cut.ties;
        ++kept;
      }
      kept += magnitude > cut.bound ? 1 : 0;
    }
  }

  // For chunks with too many candidates to examine one by one.
  HWY_INLINE void choose_of_all(const float* x, std::size_t n, std::size_t k, std::int32_t floor) {
    const auto reaching = [=](std::int32_t least) HWY_ATTR { return count_reaching(x, n, least); };
    // The most common reason is ties at the floor itself: zeros, or values of few bits.
    Bracket bracket{floor, floor + 1, reaching(floor), reaching(floor + 1)};
    if (bracket.reach_high >= k) bracket = {floor + 1, (groups_.most + 1) << 16, bracket.reach_high, 0};
    Cut cut = cut_at(k, bracket, reaching);
    guess_ = cut.bound - kBelow;
    const Magnitudes bound = hn::Set(MagnitudeTag(), cut.bound), below = hn::Set(MagnitudeTag(), cut.bound - 1);
    Index* to = candidates_.indices;
    for (std::size_t i = 0; i < n; i += 64) {
      const std::uint64_t above = marks(x + i, bound);
      std::uint64_t equal = marks(x + i, below) & ~above;
      std::uint64_t first_equal = 0;
      for (; equal != 0 && cut.ties > 0; --cut.ties) {
        first_equal |= equal & -equal;
        equal &= equal - 1;
      }
      to = put_marked(above | first_equal, i, to);
    }
    for (std::size_t i = 0; i < k; ++i) values_[i] = x[candidates_.indices[i]];
  }

  const TopkFormat format_;
  std::int32_t guess_ = 0;
  Candidates candidates_;
  GroupTops groups_;
  float values_[kTopkChunk + Candidates::kLanes];
};

void topk_encode(TopkFormat format, const float* source, std::size_t n, std::byte* target) {
  TopkEncoder encoder(format);
  std::size_t i = 0;
  for (; i + kTopkChunk <= n; i += kTopkChunk) target = encoder.encode(source + i, kTopkChunk, target);
  if (i == n) return;
  float chunk[kTopkChunk];
  std::memcpy(chunk, source + i, (n - i) * sizeof(float));
  std::fill(chunk + (n - i), chunk + kTopkChunk, 0.0f);
  encoder.encode(chunk, n - i, target);
}

bool topk_decode(TopkFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  return topk::decode(format, source, addend, {target, n}, read_chunk);
}

#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {

QCCL_KERNEL(void, topk_encode, (TopkFormat format, const float* source, std::size_t n, std::byte* target),
            (format, source, n, target))
QCCL_KERNEL(bool, topk_decode,
            (TopkFormat format, const std::byte* source, const float* addend, float* target, std::size_t n),
            (format, source, addend, target, n))

}  // namespace qccl::kernels
#endif  // HWY_ONCE
