// Blocks of grid.h one after another, over the parts of grid_lanes-inl.h and grid_values-inl.h, or of
// grid_scalar-inl.h. Per target.
//
// A block's part may read and write up to 8 bytes beyond it, which are always another block's or a copy's.

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/grid/grid_reference.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// What happens to values beyond a line's largest: they can't be, they are limited, or quantizing detects them.
enum class GridRange { impossible, limited, detected };

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if QCCL_SCALAR
#include "kernels/grid/grid_scalar-inl.h"
#else
#include "kernels/grid/grid_values-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

#if QCCL_SCALAR
using GridLanes = grid::Line;
inline float in_lanes(float step) { return step; }
#else
using GridLanes = GridLine;
HWY_INLINE Values in_lanes(float step) { return hn::Set(ValueTag(), step); }
#endif

inline constexpr std::size_t kGridSlack = 8;
inline constexpr std::size_t kWidestBlock = kGridBlock / 8 * kGridWidest;

// In place of GridRandom: rounding to nearest.
struct GridNearest {
  HWY_INLINE const std::uint8_t* at(std::size_t, std::size_t) const { return nullptr; }
};

// ---- Encoding.

// Writes one block after another, and their forms.
class GridBlocks {
 public:
  // `forms`: four bits for each block. Nothing is written beyond `end`.
  HWY_INLINE GridBlocks(std::uint8_t* forms, std::uint8_t* to, std::uint8_t* end) : forms_(forms), to_(to), end_(end) {}

  // n elements, whose integers are `z`, and 0 beyond n.
  HWY_INLINE void put(const GridIntegers& z, std::size_t n) {
    const std::uint32_t largest = z.largest();
    const bool has_room = static_cast<std::size_t>(end_ - to_) >= kWidestBlock + kGridSlack;
    if (HWY_UNLIKELY(n < kGridBlock || !has_room)) return put_rare(z, largest, n);
    const std::uint32_t form = HWY_LIKELY(largest < 256) ? grid::kFormOfByte[largest] : grid::form_of(largest);
    put_form(form);
    if (HWY_LIKELY(form <= 8)) {
      grid_pack_bytes(z, static_cast<int>(form), to_);
    } else {
      grid_pack_words(z, grid::width_of(form), to_);
    }
    to_ += grid::block_bytes(form, kGridBlock);
  }
  // n elements as they are.
  void put_raw(const float* values, std::size_t n) {
    put_form(grid::kRawForm);
    std::memcpy(to_, values, n * sizeof(float));
    to_ += n * sizeof(float);
  }
  // Blocks of zeros.
  void skip(std::size_t blocks) {
    for (std::size_t i = 0; i < blocks; ++i) put_form(0);
  }
  HWY_INLINE std::uint8_t* end() const { return to_; }

 private:
  // `z` is a copy, so that others stay in registers.
  HWY_NOINLINE void put_rare(GridIntegers z, std::uint32_t largest, std::size_t n) {
    const std::uint32_t form = grid::form_of(largest);
    put_form(form);
    std::uint8_t block[kWidestBlock + kGridSlack];
    if (form <= 8) {
      grid_pack_bytes(z, static_cast<int>(form), block);
    } else {
      grid_pack_words(z, grid::width_of(form), block);
    }
    const std::size_t bytes = grid::block_bytes(form, n);
    std::memcpy(to_, block, bytes);
    to_ += bytes;
  }

  HWY_INLINE void put_form(std::uint32_t form) {
    pair_ = next_ % 2 == 0 ? form : pair_ | form << 4;
    forms_[next_++ / 2] = static_cast<std::uint8_t>(pair_);
  }

  std::uint8_t* const forms_;
  std::size_t next_ = 0;
  std::uint32_t pair_ = 0;  // forms of the last one or two
  std::uint8_t* to_;
  std::uint8_t* const end_;
};

// The n values at `source`, or where these are fewer than a block's, a copy with zeros behind it.
HWY_INLINE const float* whole_block(const float* source, std::size_t n, float (&padded)[kGridBlock]) {
  if (HWY_LIKELY(n == kGridBlock)) return source;
  std::memcpy(padded, source, n * sizeof(float));
  std::fill(padded + n, padded + kGridBlock, 0.0f);
  return padded;
}

// A part of a run of elements that share a line, in blocks. `random`: a byte for each, or null.
template <GridRange kRange>
HWY_INLINE void encode_part(const grid::Line& shared, const float* source, std::size_t count,
                            const std::uint8_t* random, GridBlocks& blocks) {
  const GridLanes line(shared);
  for (std::size_t i = 0; i < count; i += kGridBlock) {
    const std::size_t n = std::min(kGridBlock, count - i);
    float padded[kGridBlock];
    const float* const block = whole_block(source + i, n, padded);
    const std::uint8_t* const bytes = random != nullptr ? random + i : nullptr;
    GridIntegers integers;
    if (integers.quantize<kRange>(block, line, bytes)) {
      blocks.put(integers, n);
    } else {
      float kept[kGridBlock];
      grid_keep(block, line, bytes, kept);
      blocks.put_raw(kept, n);
    }
  }
}

// Elements [begin, end) of a slice, which share a line.
template <GridRange kRange, class Random>
HWY_INLINE void encode_run(const grid::Line& line, const float* source, std::size_t begin, std::size_t end,
                           Random& random, GridBlocks& blocks) {
  for (std::size_t i = begin; i < end; i += kGridPart) {
    const std::size_t n = std::min(kGridPart, end - i);
    encode_part<kRange>(line, source + i, n, random.at(i, n), blocks);
  }
}

// ---- Decoding.

// Reads one block after another, whose bytes are there.
class GridInput {
 public:
  HWY_INLINE GridInput(const std::uint8_t* forms, const std::uint8_t* at, const std::uint8_t* end)
      : forms_(forms), at_(at), end_(end) {}

  // The next elements to target[begin, end): whole blocks, except at the end of the slice.
  template <class Finish, class Step>
  HWY_INLINE void get(std::size_t begin, std::size_t end, Step step, float* target, Finish& finish) {
    const std::uint8_t* at = at_;  // in a register, which at_ is not
    const std::uint8_t* readable = end_;
    for (std::size_t i = begin; i < end; i += kGridBlock, ++next_) {
      const std::uint32_t form = forms_[next_ / 2] >> next_ % 2 * 4 & 15u;
      const bool has_room = static_cast<std::size_t>(readable - at) >= kWidestBlock + kGridSlack;
      if (HWY_LIKELY(form != grid::kRawForm && i + kGridBlock <= end && has_room)) {
        grid_decode_block(at, grid::width_of(form), step, target, i, finish);
        at += grid::block_bytes(form, kGridBlock);
      } else {
        at_ = at;
        get_rare(form, std::min(kGridBlock, end - i), step, target, i, finish);
        at = at_;
        readable = end_;
      }
    }
    at_ = at;
  }

 private:
  // Goes on in a copy where too few bytes follow.
  HWY_INLINE void make_readable() {
    if (static_cast<std::size_t>(end_ - at_) >= kWidestBlock + kGridSlack) return;
    if (end_ == tail_ + sizeof(tail_)) return;
    const auto left = static_cast<std::size_t>(end_ - at_);
    std::memcpy(tail_, at_, left);
    at_ = tail_;
    end_ = tail_ + sizeof(tail_);
  }

  // Any block. `finish` is a copy, so that others stay in registers.
  template <class Finish, class Step>
  HWY_NOINLINE void get_rare(std::uint32_t form, std::size_t n, Step step, float* target, std::size_t index,
                             Finish finish) {
    float values[kGridBlock];
    if (form == grid::kRawForm) {
      std::memcpy(values, at_, n * sizeof(float));
    } else {
      make_readable();
      GridAssign assign(nullptr);
      grid_decode_block(at_, grid::width_of(form), step, values, 0, assign);
    }
    at_ += grid::block_bytes(form, n);
    for (std::size_t i = 0; i < n; ++i) finish.store(values[i], target, index + i);
  }

  const std::uint8_t* const forms_;
  std::size_t next_ = 0;
  const std::uint8_t* at_;
  const std::uint8_t* end_;
  std::uint8_t tail_[2 * (kWidestBlock + kGridSlack)] = {};
};

template <class Finish>
HWY_INLINE void decode_run(float step, std::size_t begin, std::size_t end, float* target, GridInput& input,
                           Finish& finish) {
  input.get(begin, end, in_lanes(step), target, finish);
  finish.end(target, begin, end);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
