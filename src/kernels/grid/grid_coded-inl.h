// The entropy stage of a slice (grid.h), between blocks and coders. Per target.

#include <algorithm>
#include <cstring>

#include "kernels/grid/grid_blocks-inl.h"
#include "kernels/grid/grid_entropy.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// ---- Encoding.

// Writes the bytes of a slice: the steps, then one segment after another.
template <class Random>
class SegmentWriter {
 public:
  HWY_INLINE SegmentWriter(const GridFormat& format, const float* source, std::size_t n, Random& random,
                           std::uint8_t* to)
      : format_(format),
        source_(source),
        n_(n),
        random_(random),
        steps_(to),
        to_(to),
        end_(to + grid_max_bytes(format, n)) {}

  // Returns the end of what it wrote.
  HWY_INLINE std::uint8_t* write() {
    for (std::size_t i = 0; format_.is_relative() && i < n_; i += format_.bucket_size, to_ += kGridStepBytes) {
      const std::size_t n = std::min<std::size_t>(format_.bucket_size, n_ - i);
      reference::store_at(to_, 0, grid::stored_step(format_.relative, grid_squares(source_ + i, n), n));
    }
    for (std::size_t begin = 0; begin < n_; begin += grid::kSegment) {
      write_segment(begin, std::min(n_, begin + grid::kSegment));
    }
    return to_;
  }

 private:
  HWY_INLINE grid::Line line_at(std::size_t index) const {
    if (!format_.is_relative()) return grid::line_of(format_.step);
    return grid::line_of(grid::read_step(steps_ + index / format_.bucket_size * kGridStepBytes));
  }

  HWY_NOINLINE void write_segment(std::size_t begin, std::size_t end) {
    const std::size_t groups = bucket_count(grid::kGroup, end - begin);
    bool coded = false;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t at = begin + g * grid::kGroup;
      classes_[g] =
          static_cast<std::uint8_t>(quantize_group(at, std::min(grid::kGroup, end - at), z_ + g * grid::kGroup));
      coded |= classes_[g] != grid::kZeros && classes_[g] != grid::kBlocks;
    }
    for (std::size_t g = 0; g < groups; g += 2) {
      *to_++ = static_cast<std::uint8_t>(classes_[g] | (g + 1 < groups ? classes_[g + 1] << 4 : 0));
    }
    if (coded) write_words(begin, end, groups);
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t at = begin + g * grid::kGroup;
      write_rest(classes_[g], largest_[g], at, std::min(grid::kGroup, end - at), z_ + g * grid::kGroup);
    }
  }

  // Returns the class of n elements.
  HWY_INLINE std::uint32_t quantize_group(std::size_t at, std::size_t n, std::uint8_t* z) {
    if (format_.is_relative()) return quantize_group<GridRange::limited>(at, n, z);
    return quantize_group<GridRange::detected>(at, n, z);
  }
  template <GridRange kRange>
  HWY_INLINE std::uint32_t quantize_group(std::size_t at, std::size_t n, std::uint8_t* z) {
    const grid::Line shared = line_at(at);
    if (shared.step != shared.step) return grid::kZeros;
    const std::uint8_t* const random = random_.at(at, n);
    const auto line = in_lanes(shared, random != nullptr);
    std::size_t block_bits = 16;
    std::uint32_t group_largest = 0;
    std::fill(z + n / kGridBlock * kGridBlock, z + grid::kGroup, std::uint8_t{0});
    for (std::size_t i = 0; i < n; i += kGridBlock) {
      float padded[kGridBlock];
      const std::size_t count = std::min(kGridBlock, n - i);
      GridIntegers integers;
      const float* const block = whole_block(source_ + at + i, count, padded);
      if (!integers.template quantize<kRange>(block, line, random != nullptr ? random + i : nullptr))
        return grid::kBlocks;
      const std::uint32_t largest = integers.largest();
      if (largest > 255) return grid::kBlocks;
      group_largest = std::max(group_largest, largest);
      integers.store_bytes(z + i);
      block_bits += 8 * grid::block_bytes(grid::form_of(largest), count);
    }
    largest_[at % grid::kSegment / grid::kGroup] = static_cast<std::uint8_t>(group_largest);
    return grid::choose_class(z, grid_magnitudes(z), n, block_bits);
  }

  HWY_INLINE void write_words(std::size_t begin, std::size_t end, std::size_t groups) {
    grid::States states;
    states.fill(grid::kFirstState);
    std::uint16_t* front = words_ + grid::kSegment + 1;
    for (std::size_t g = groups; g-- > 0;) {
      if (classes_[g] == grid::kZeros || classes_[g] == grid::kBlocks) continue;
      const std::size_t n = std::min(grid::kGroup, end - begin - g * grid::kGroup);
      front = grid::encode_symbols(classes_[g], z_ + g * grid::kGroup, grid::eights(n) * 8, states, front);
    }
    const auto count = static_cast<std::uint16_t>(words_ + grid::kSegment + 1 - front);
    std::memcpy(to_, states.data(), sizeof(states));
    std::memcpy(to_ + sizeof(states), &count, sizeof(count));
    std::memcpy(to_ + sizeof(states) + sizeof(count), front, count * sizeof(*front));
    to_ += sizeof(states) + sizeof(count) + count * sizeof(*front);
  }

  // What follows the words for a group of n elements, whose largest integer this is.
  HWY_INLINE void write_rest(std::uint32_t entropy_class, std::uint32_t largest, std::size_t at, std::size_t n,
                             const std::uint8_t* z) {
    if (entropy_class == grid::kZeros) return;
    if (entropy_class == grid::kBlocks) return write_blocks(at, n);
    const int low = grid::low_bits(entropy_class);
    const grid::EightBits bits(low);
    for (std::size_t i = 0; i < n && low > 0; i += 8) {
      std::uint64_t eight;
      std::memcpy(&eight, z + i, 8);
      eight = bits.close(eight & 0x0101010101010101u * ((1u << low) - 1));
      std::memcpy(to_, &eight, static_cast<std::size_t>(low));
      to_ += low;
    }
    const std::uint32_t escape = grid::escape(entropy_class);
    if (largest >> low < escape) return;
    for (std::size_t i = 0; i < n; ++i) {
      if (z[i] >> low >= static_cast<int>(escape)) *to_++ = static_cast<std::uint8_t>(z[i] >> low);
    }
  }

  HWY_NOINLINE void write_blocks(std::size_t at, std::size_t n) {
    const std::size_t forms = grid_form_bytes(n);
    GridBlocks blocks(to_, to_ + forms, end_);
    const std::uint8_t* const random = random_.at(at, n);
    if (format_.is_relative()) {
      blocks.put<GridRange::limited>(line_at(at), source_ + at, n, random);
    } else {
      blocks.put<GridRange::detected>(line_at(at), source_ + at, n, random);
    }
    to_ = blocks.end();
  }

  const GridFormat& format_;
  const float* const source_;
  const std::size_t n_;
  Random& random_;
  const std::uint8_t* const steps_;
  std::uint8_t* to_;
  std::uint8_t* const end_;
  std::uint8_t classes_[grid::kSegment / grid::kGroup];
  std::uint8_t largest_[grid::kSegment / grid::kGroup];  // integer of each group
  alignas(64) std::uint8_t z_[grid::kSegment];
  std::uint16_t words_[grid::kSegment + 1];
};

// ---- Decoding.

// Reads the bytes of a slice after its steps, one segment after another. Every read is of bytes that are there.
template <class Finish>
class SegmentReader {
 public:
  HWY_INLINE SegmentReader(const std::uint8_t* at, std::size_t left, bool may_be_raw)
      : at_(at), left_(left), may_be_raw_(may_be_raw) {}

  // The n elements of a segment to target[begin] and on; step_at(index) is that of an element. False: the bytes are
  // no segment.
  template <class StepAt>
  HWY_NOINLINE bool read(std::size_t begin, std::size_t n, StepAt step_at, float* target, Finish& finish) {
    const std::size_t groups = bucket_count(grid::kGroup, n);
    const std::uint8_t* const classes = take((groups + 1) / 2);
    if (classes == nullptr || (groups % 2 != 0 && classes[groups / 2] >> 4 != 0)) return false;
    const auto class_of = [&](std::size_t g) { return std::uint32_t{classes[g / 2]} >> g % 2 * 4 & 15u; };
    bool coded = false;
    for (std::size_t g = 0; g < groups; ++g) coded |= class_of(g) != grid::kZeros && class_of(g) != grid::kBlocks;
    next_ = words_;
    words_end_ = words_;
    states_.fill(grid::kFirstState);
    if (coded && !take_words()) return false;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t at = begin + g * grid::kGroup, count = std::min(grid::kGroup, n - g * grid::kGroup);
      if (!read_group(class_of(g), at, count, step_at(at), target, finish)) return false;
    }
    const bool ended = std::all_of(states_.begin(), states_.end(), [](auto x) { return x == grid::kFirstState; });
    return ended && next_ == words_end_;
  }
  bool is_at_end() const { return left_ == 0; }

 private:
  // The next `bytes`, or null.
  HWY_INLINE const std::uint8_t* take(std::size_t bytes) {
    if (bytes > left_) return nullptr;
    const std::uint8_t* const taken = at_;
    at_ += bytes;
    left_ -= bytes;
    return taken;
  }

  HWY_INLINE bool take_words() {
    const std::uint8_t* const header = take(sizeof(states_) + sizeof(std::uint16_t));
    if (header == nullptr) return false;
    std::memcpy(states_.data(), header, sizeof(states_));
    const std::size_t count = reference::load_at<std::uint16_t>(header + sizeof(states_), 0);
    const std::uint8_t* const words = take(count * sizeof(std::uint16_t));
    if (words == nullptr || count > grid::kSegment) return false;
    std::memcpy(words_, words, count * sizeof(std::uint16_t));
    std::fill_n(words_ + count, grid::kGroup + 1, std::uint16_t{0});
    words_end_ = words_ + count;
    return true;
  }

  HWY_INLINE bool read_group(std::uint32_t entropy_class, std::size_t at, std::size_t n, float step, float* target,
                             Finish& finish) {
    if (entropy_class == grid::kBlocks) return read_blocks(at, n, step, target, finish);
    alignas(64) std::uint8_t z[grid::kGroup];
    const std::size_t coded = entropy_class == grid::kZeros ? 0 : grid::eights(n) * 8;
    std::fill(z + coded, z + grid::kGroup, std::uint8_t{0});
    if (coded > 0) {
      next_ = grid::decode_symbols(entropy_class, next_, states_, coded, z);
      if (next_ > words_end_ || !add_rest(entropy_class, n, z)) return false;
    }
    const auto lanes = in_lanes(step);
    std::size_t i = 0;
    for (; i + kGridBlock <= n; i += kGridBlock) grid_decode_bytes(z + i, lanes, target, at + i, finish);
    if (i < n) {
      float values[kGridBlock];
      GridAssign assign(nullptr);
      grid_decode_bytes(z + i, lanes, values, 0, assign);
      for (std::size_t rest = 0; i + rest < n; ++rest) finish.store(values[rest], target, at + i + rest);
    }
    finish.end(target, at, at + n);
    return true;
  }

  // Replaces symbols by integers.
  HWY_INLINE bool add_rest(std::uint32_t entropy_class, std::size_t n, std::uint8_t* z) {
    const int low = grid::low_bits(entropy_class);
    const auto escape = static_cast<std::uint8_t>(grid::escape(entropy_class));
    const std::uint8_t* const lower = take(grid::eights(n) * static_cast<std::size_t>(low));
    if (lower == nullptr) return false;
    const std::uint8_t* found = z;
    while ((found = static_cast<const std::uint8_t*>(
                std::memchr(found, escape, static_cast<std::size_t>(z + n - found)))) != nullptr) {
      const std::uint8_t* const larger = take(1);
      if (larger == nullptr) return false;
      z[found - z] = *larger;
      ++found;
    }
    const grid::EightBits bits(low);
    for (std::size_t i = 0; i < n && low > 0; i += 8) {
      std::uint64_t eight = 0, upper;
      std::memcpy(&eight, lower + i / 8 * static_cast<std::size_t>(low), static_cast<std::size_t>(low));
      std::memcpy(&upper, z + i, 8);
      upper = (upper & 0x0101010101010101u * (0xFFu >> low)) << low | bits.open(eight);
      std::memcpy(z + i, &upper, 8);
    }
    return true;
  }

  HWY_NOINLINE bool read_blocks(std::size_t at, std::size_t n, float step, float* target, Finish& finish) {
    const std::uint8_t* const forms = take(grid_form_bytes(n));
    if (forms == nullptr) return false;
    const std::size_t bytes = grid::blocks_bytes(forms, n, may_be_raw_);
    const std::uint8_t* const blocks = bytes == grid::kNoForms ? nullptr : take(bytes);
    if (blocks == nullptr) return false;
    GridInput input(forms, blocks, blocks + bytes);
    decode_run(step, at, at + n, target, input, finish);
    return true;
  }

  const std::uint8_t* at_;
  std::size_t left_;
  const bool may_be_raw_;
  grid::States states_;
  const std::uint16_t* next_ = nullptr;
  const std::uint16_t* words_end_ = nullptr;
  std::uint16_t words_[grid::kSegment + grid::kGroup + 1];
};

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
