// The parts of grid_slices-inl.h one element at a time, for the target without vectors: the specification.

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/grid/grid_entropy.h"
#include "kernels/grid/grid_reference.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// Destination of decoded values, as Assign and AddTo of lanes/value_lanes-inl.h in one.
class GridFinish {
 public:
  explicit GridFinish(const float* addend) : addend_(addend) {}
  void store(float y, float* target, std::size_t index) const { reference::finish(y, addend_, target, index); }
  void end(float*, std::size_t, std::size_t) const {}

 private:
  const float* addend_;
};
using GridAssign = GridFinish;
using GridAdd = GridFinish;

class GridRandom {
 public:
  explicit GridRandom(const RandomStream& stream) : stream_(stream) {}
  // The bytes of up to kGridPart elements from this index on, valid until the next call.
  const std::uint8_t* at(std::size_t index, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      bytes_[i] = reference::random_byte(stream_, stream_.first_element + index + i);
    }
    return bytes_;
  }

 private:
  const RandomStream stream_;
  std::uint8_t bytes_[kGridPart + kGridBlock] = {};
};

inline double grid_squares(const float* v, std::size_t n) { return grid::squares_of(v, n); }

inline std::int32_t grid_integer(float x, const grid::Line& line, const std::uint8_t* random, std::size_t i) {
  return random == nullptr ? grid::integer_of(x, line) : grid::integer_of(x, line, random[i]);
}

// The zigzag integers of a block.
class GridIntegers {
 public:
  // False if a value is out of range and that is to be detected.
  template <GridRange kRange>
  bool quantize(const float* x, const grid::Line& line, const std::uint8_t* random) {
    for (std::size_t i = 0; i < kGridBlock; ++i) {
      if (kRange == GridRange::detected && !grid::is_in_range(x[i], line)) return false;
      words_[i] = static_cast<std::uint16_t>(grid::zigzag(grid_integer(x[i], line, random, i)));
    }
    return true;
  }
  std::uint32_t largest() const { return *std::max_element(words_, words_ + kGridBlock); }
  std::uint32_t word(std::size_t i) const { return words_[i]; }
  // If all are below 256.
  void store_bytes(std::uint8_t* to) const { std::copy_n(words_, kGridBlock, to); }

 private:
  std::uint16_t words_[kGridBlock];
};

inline void grid_keep(const float* x, const grid::Line& line, const std::uint8_t* random, float* y) {
  for (std::size_t i = 0; i < kGridBlock; ++i) {
    const bool fits = grid::is_in_range(x[i], line);
    y[i] = fits ? static_cast<float>(grid_integer(x[i], line, random, i)) * line.step : x[i];
  }
}

inline void grid_pack_words(const GridIntegers& z, int width, std::uint8_t* to) {
  const int lower = width > 8 ? 8 : 0;
  for (std::size_t begin = 0; begin < kGridBlock; begin += 8, to += width) {
    for (std::size_t i = 0; i < 8 && lower > 0; ++i) to[i] = static_cast<std::uint8_t>(z.word(begin + i));
    BitWriter upper(reinterpret_cast<std::byte*>(to + lower), width - lower);
    for (std::size_t i = 0; i < 8; ++i) upper.put(z.word(begin + i) >> lower);
    upper.end();
  }
}

inline void grid_pack_bytes(const GridIntegers& z, int width, std::uint8_t* to) { grid_pack_words(z, width, to); }

inline void grid_unpack(const std::uint8_t* from, int width, std::uint16_t* z) {
  for (std::size_t begin = 0; begin < kGridBlock; begin += 8, from += width) {
    const int lower = width > 8 ? 8 : 0;
    BitReader upper(reinterpret_cast<const std::byte*>(from + lower), width - lower);
    for (std::size_t i = 0; i < 8; ++i) {
      z[begin + i] = static_cast<std::uint16_t>(upper.get() << lower | (lower > 0 ? from[i] : 0u));
    }
  }
}

// The sum of the magnitudes of a group's integers.
inline std::uint32_t grid_magnitudes(const std::uint8_t* z) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < grid::kGroup; ++i) sum += (z[i] + 1u) / 2;
  return sum;
}

template <class Finish>
void grid_dequantize(const std::uint16_t* z, float step, float* target, std::size_t index, Finish& finish) {
  for (std::size_t i = 0; i < kGridBlock; ++i) {
    const float y = static_cast<float>(grid::unzigzag(z[i])) * step;
    finish.store(step == step ? y : canonical_nan(), target, index + i);
  }
}

// A block of zigzag integers of a byte each.
template <class Finish>
void grid_decode_bytes(const std::uint8_t* z, float step, float* target, std::size_t index, Finish& finish) {
  std::uint16_t wide[kGridBlock];
  std::copy_n(z, kGridBlock, wide);
  grid_dequantize(wide, step, target, index, finish);
}

template <class Finish>
void grid_decode_block(const std::uint8_t* from, int width, float step, float* target, std::size_t index,
                       Finish& finish) {
  std::uint16_t z[kGridBlock];
  grid_unpack(from, width, z);
  grid_dequantize(z, step, target, index, finish);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
