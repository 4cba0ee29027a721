// Slices of grid.h over the parts of grid_lanes-inl.h and grid_values-inl.h, or of grid_scalar-inl.h. Per target.
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
    const std::uint32_t form = grid::form_of(z.largest());
    put_form(form);
    const int width = grid::width_of(form);
    const std::size_t bytes = grid::eights(n) * static_cast<std::size_t>(width);
    if (HWY_LIKELY(static_cast<std::size_t>(end_ - to_) >= kWidestBlock + kGridSlack)) {
      grid_pack(z, width, to_);
    } else {
      std::uint8_t block[kWidestBlock + kGridSlack];
      grid_pack(z, width, block);
      std::memcpy(to_, block, bytes);
    }
    to_ += bytes;
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

// A part of a run of elements that share a line, in blocks. `random`: a byte for each, or null.
template <GridRange kRange>
HWY_INLINE void encode_part(const grid::Line& shared, const float* source, std::size_t count,
                            const std::uint8_t* random, GridBlocks& blocks) {
  const GridLanes line(shared);
  for (std::size_t i = 0; i < count; i += kGridBlock) {
    const std::size_t n = std::min(kGridBlock, count - i);
    const float* block = source + i;
    float padded[kGridBlock];
    if (HWY_UNLIKELY(n < kGridBlock)) {
      std::memcpy(padded, block, n * sizeof(float));
      std::fill(padded + n, padded + kGridBlock, 0.0f);
      block = padded;
    }
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

template <class Random>
HWY_INLINE void encode_buckets(const GridFormat& format, const float* source, std::size_t n, std::uint8_t* steps,
                               Random& random, GridBlocks& blocks) {
  for (std::size_t begin = 0; begin < n; begin += format.bucket_size, steps += kGridStepBytes) {
    const std::size_t count = std::min<std::size_t>(format.bucket_size, n - begin);
    const double squares = grid_squares(source + begin, count);
    reference::store_at(steps, 0, grid::stored_step(format.relative, squares, count));
    if (std::isfinite(squares)) {
      const grid::Line line = grid::line_of(grid::read_step(reinterpret_cast<const std::byte*>(steps)));
      if (line.largest == grid::kLargestInteger) {
        encode_run<GridRange::impossible>(line, source, begin, begin + count, random, blocks);
      } else {
        encode_run<GridRange::limited>(line, source, begin, begin + count, random, blocks);
      }
    } else {
      blocks.skip(bucket_count(kGridBlock, count));
    }
  }
}

template <class Random>
HWY_NOINLINE std::size_t encode_slice(const GridFormat& format, const float* source, std::size_t n, std::byte* target,
                                      Random random) {
  auto* const to = reinterpret_cast<std::uint8_t*>(target);
  std::uint8_t* const forms = to + grid_step_bytes(format, n);
  std::uint8_t* const payload = forms + grid_form_bytes(n);
  GridBlocks blocks(forms, payload, to + grid_max_bytes(format, n));
  if (format.is_relative()) {
    encode_buckets(format, source, n, to, random, blocks);
  } else {
    encode_run<GridRange::detected>(grid::line_of(format.step), source, 0, n, random, blocks);
  }
  return static_cast<std::size_t>(blocks.end() - to);
}

std::size_t grid_encode(const GridFormat& format, const float* source, std::size_t n, std::byte* target,
                        const RandomStream* stream) {
  if (stream == nullptr) return encode_slice(format, source, n, target, GridNearest());
  return encode_slice(format, source, n, target, GridRandom(*stream));
}

// ---- Decoding.

// Reads one block after another, whose bytes are there.
class GridInput {
 public:
  HWY_INLINE GridInput(const std::uint8_t* forms, const std::uint8_t* at, const std::uint8_t* end)
      : forms_(forms), at_(at), end_(end) {}

  // The next n elements to target[index] and on.
  template <class Finish, class Step>
  HWY_INLINE void get(std::size_t n, Step step, float* target, std::size_t index, Finish& finish) {
    const std::uint32_t form = forms_[next_ / 2] >> next_ % 2 * 4 & 15u;
    ++next_;
    const std::size_t bytes = grid::block_bytes(form, n);
    if (HWY_UNLIKELY(form == grid::kRawForm || n < kGridBlock)) {
      get_rare(form, n, step, target, index, finish);
    } else {
      make_readable();
      grid_decode_block(at_, grid::width_of(form), step, target, index, finish);
    }
    at_ += bytes;
  }

 private:
  // Goes on in a copy where too few bytes follow.
  HWY_INLINE void make_readable() {
    if (HWY_LIKELY(static_cast<std::size_t>(end_ - at_) >= kWidestBlock + kGridSlack)) return;
    if (end_ == tail_ + sizeof(tail_)) return;
    const auto left = static_cast<std::size_t>(end_ - at_);
    std::memcpy(tail_, at_, left);
    at_ = tail_;
    end_ = tail_ + sizeof(tail_);
  }

  // Unchanged values, and the last block.
  template <class Finish, class Step>
  HWY_NOINLINE void get_rare(std::uint32_t form, std::size_t n, Step step, float* target, std::size_t index,
                             Finish& finish) {
    float values[kGridBlock];
    if (form == grid::kRawForm) {
      std::memcpy(values, at_, n * sizeof(float));
    } else {
      make_readable();
      GridAssign assign(nullptr);
      grid_decode_block(at_, grid::width_of(form), step, values, 0, assign);
    }
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
  const auto lanes = in_lanes(step);
  std::size_t i = begin;
  for (; i + kGridBlock <= end; i += kGridBlock) input.get(kGridBlock, lanes, target, i, finish);
  if (i < end) input.get(end - i, lanes, target, i, finish);
  finish.end(target, begin, end);
}

// Whether the forms of n elements are valid and the blocks take `bytes`.
inline bool are_forms_good(const GridFormat& format, const std::uint8_t* forms, std::size_t n, std::size_t bytes) {
  const std::size_t blocks = bucket_count(kGridBlock, n);
  std::size_t needed = 0;
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::uint32_t form = forms[i / 2] >> i % 2 * 4 & 15u;
    if (form == grid::kRawForm && format.is_relative()) return false;
    needed += grid::block_bytes(form, std::min(kGridBlock, n - i * kGridBlock));
  }
  return needed == bytes && (blocks % 2 == 0 || forms[blocks / 2] >> 4 == 0);
}

inline constexpr std::size_t kGridRun = 4096;  // elements after which sums are checked for NaN, in whole blocks

template <class Finish>
HWY_NOINLINE bool decode_slice(const GridFormat& format, const std::byte* source, std::size_t bytes,
                               const float* addend, float* target, std::size_t n) {
  const std::size_t headers = grid_step_bytes(format, n) + grid_form_bytes(n);
  if (bytes < headers) return false;
  const auto* const from = reinterpret_cast<const std::uint8_t*>(source);
  const std::uint8_t* const forms = from + grid_step_bytes(format, n);
  if (!are_forms_good(format, forms, n, bytes - headers)) return false;
  GridInput input(forms, from + headers, from + bytes);
  Finish finish(addend);
  const std::size_t bucket = format.is_relative() ? format.bucket_size : n;
  for (std::size_t begin = 0; begin < n; begin += bucket, source += kGridStepBytes) {
    const float step = format.is_relative() ? grid::read_step(source) : format.step;
    const std::size_t end = std::min(n, begin + bucket);
    for (std::size_t i = begin; i < end; i += kGridRun) {
      decode_run(step, i, std::min(end, i + kGridRun), target, input, finish);
    }
  }
  return true;
}

bool grid_decode(const GridFormat& format, const std::byte* source, std::size_t bytes, const float* addend,
                 float* target, std::size_t n) {
  if (addend == nullptr) return decode_slice<GridAssign>(format, source, bytes, addend, target, n);
  return decode_slice<GridAdd>(format, source, bytes, addend, target, n);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
