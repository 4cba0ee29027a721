// random.h in vectors. Per target.

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/lanes/random.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The random bytes of one stream, for runs of at most kMost elements, in its own memory.
template <std::size_t kMost>
class RandomRun {
 public:
  explicit HWY_INLINE RandomRun(const RandomStream& stream)
      : stream_(stream), offset_(reference::stratum_offset(stream.rank, stream.world)) {}

  // The bytes of the `n` elements from `index` of the stream on, valid until the next call. Up to 64 bytes beyond their
  // end are readable.
  HWY_INLINE const std::uint8_t* at(std::size_t index, std::size_t n) {
    const std::uint64_t element = stream_.first_element + index;
    const std::uint64_t counter = element / 4;
    const std::size_t skipped = element % 4;
    fill(counter, (skipped + n + 3) / 4);
    return reinterpret_cast<const std::uint8_t*>(words_) + skipped;
  }

 private:
  using Tag = hn::ScalableTag<std::uint32_t>;
  using Bytes = hn::Repartition<std::uint8_t, Tag>;

  HWY_INLINE void fill(std::uint64_t counter, std::size_t count) {
    const std::uint64_t left_of_keys = (std::uint64_t{1} << 32) - (counter & 0xFFFFFFFFu);
    const auto first = static_cast<std::size_t>(std::min<std::uint64_t>(count, left_of_keys));
    fill_with_keys(counter, first, words_);
    if (first < count) fill_with_keys(counter + first, count - first, words_ + first);
  }

  // Writes whole vectors.
  HWY_INLINE void fill_with_keys(std::uint64_t counter, std::size_t count, std::uint32_t* to) {
    const Tag d;
    const Bytes bytes;
    const auto keys = reference::random_keys(stream_.key, static_cast<std::uint32_t>(counter >> 32));
    const auto first_key = hn::Set(d, keys.first), second_key = hn::Set(d, keys.second);
    const auto first_factor = hn::Set(d, reference::kRandomFirstFactor);
    const auto second_factor = hn::Set(d, reference::kRandomSecondFactor);
    const auto offset = hn::Set(bytes, offset_);
    const auto step = hn::Set(d, static_cast<std::uint32_t>(hn::Lanes(d)));
    auto lower = hn::Add(hn::Iota(d, 0), hn::Set(d, static_cast<std::uint32_t>(counter)));
    HWY_UNROLL(4)
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
      auto x = hn::Xor(lower, first_key);
      x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), first_factor);
      x = hn::Mul(hn::Add(hn::Xor(x, hn::ShiftRight<15>(x)), second_key), second_factor);
      x = hn::Xor(x, hn::ShiftRight<16>(x));
      hn::StoreU(hn::BitCast(d, hn::Add(hn::BitCast(bytes, x), offset)), d, to + i);
      lower = hn::Add(lower, step);
    }
  }

  const RandomStream stream_;
  const std::uint8_t offset_;
  alignas(64) std::uint32_t words_[kMost / 4 + 1 + 2 * 64 / 4];
};

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
