// Slices of grid.h, with the entropy stage and without. Per target.

#include <algorithm>

#include "kernels/grid/grid_coded-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// ---- Encoding.

// Elements [begin, end) of a slice, which share a line.
template <class Random>
HWY_INLINE void encode_bucket(const grid::Line& line, const float* source, std::size_t begin, std::size_t end,
                              Random& random, GridBlocks& blocks) {
  if (line.step != line.step) return blocks.skip(bucket_count(kGridBlock, end - begin));
  if (line.largest == grid::kLargestInteger) {
    encode_run<GridRange::impossible>(line, source, begin, end, random, blocks);
  } else {
    encode_run<GridRange::limited>(line, source, begin, end, random, blocks);
  }
}

inline constexpr std::size_t kGridRun = 4096;  // elements that stay in L1, in whole blocks

// Computes the squares of several buckets, then all their steps, so that divisions and square roots overlap.
template <class Random>
HWY_INLINE void encode_buckets(const GridFormat& format, const float* source, std::size_t n, std::uint8_t* steps,
                               Random& random, GridBlocks& blocks) {
  const std::size_t bucket = format.bucket_size, run = std::max<std::size_t>(1, kGridRun / bucket) * bucket;
  double squares[kGridRun / kGridSmallestBucket];
  grid::Line lines[kGridRun / kGridSmallestBucket];
  for (std::size_t begin = 0; begin < n; begin += run) {
    const std::size_t end = std::min(n, begin + run), count = bucket_count(bucket, end - begin);
    const auto end_of = [&](std::size_t b) { return std::min(end, begin + (b + 1) * bucket); };
    for (std::size_t b = 0, i = begin; b < count; ++b, i += bucket)
      squares[b] = grid_squares(source + i, end_of(b) - i);
    for (std::size_t b = 0, i = begin; b < count; ++b, i += bucket, steps += kGridStepBytes) {
      const std::uint16_t step = grid::stored_step(format.relative, squares[b], end_of(b) - i);
      reference::store_at(steps, 0, step);
      lines[b] = grid::line_of(grid::read_step(step));
    }
    for (std::size_t b = 0, i = begin; b < count; ++b, i += bucket) {
      encode_bucket(lines[b], source, i, end_of(b), random, blocks);
    }
  }
}

template <class Random>
HWY_NOINLINE std::size_t encode_slice(const GridFormat& format, const float* source, std::size_t n, std::byte* target,
                                      Random random) {
  auto* const to = reinterpret_cast<std::uint8_t*>(target);
  if (format.entropy) {
    return static_cast<std::size_t>(SegmentWriter<Random>(format, source, n, random, to).write() - to);
  }
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

template <class Finish>
HWY_NOINLINE bool decode_segments(const GridFormat& format, const std::uint8_t* source, std::size_t bytes,
                                  float* target, std::size_t n, Finish& finish) {
  const std::size_t steps = grid_step_bytes(format, n);
  SegmentReader<Finish> reader(source + steps, bytes - steps, !format.is_relative());
  const auto step_at = [&](std::size_t index) {
    if (!format.is_relative()) return format.step;
    return grid::read_step(source + index / format.bucket_size * kGridStepBytes);
  };
  for (std::size_t begin = 0; begin < n; begin += grid::kSegment) {
    if (!reader.read(begin, std::min(grid::kSegment, n - begin), step_at, target, finish)) return false;
  }
  return reader.is_at_end();
}

template <class Finish>
HWY_NOINLINE bool decode_slice(const GridFormat& format, const std::byte* source, std::size_t bytes,
                               const float* addend, float* target, std::size_t n) {
  Finish finish(addend);
  const auto* const from = reinterpret_cast<const std::uint8_t*>(source);
  const std::size_t steps = grid_step_bytes(format, n), headers = steps + (format.entropy ? 0 : grid_form_bytes(n));
  if (bytes < headers) return false;
  if (format.entropy) return decode_segments(format, from, bytes, target, n, finish);
  if (grid::blocks_bytes(from + steps, n, !format.is_relative()) != bytes - headers) return false;
  GridInput input(from + steps, from + headers, from + bytes);
  const std::size_t bucket = format.is_relative() ? format.bucket_size : n;
  const std::uint8_t* stored = from;
  for (std::size_t begin = 0; begin < n; begin += bucket, stored += kGridStepBytes) {
    const float step = format.is_relative() ? grid::read_step(stored) : format.step;
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
