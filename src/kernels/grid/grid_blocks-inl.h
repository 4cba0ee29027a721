// Blocks of grid.h one after another, over the parts of grid_lanes-inl.h and grid_values-inl.h, or of
// grid_scalar-inl.h. Per target.
//
// A block's part may read up to 8 bytes beyond it and write up to 16, which are always another block's or a copy's.

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
using EightBits = grid::EightBits;
inline const grid::Line& in_lanes(const grid::Line& line, bool) { return line; }
inline float in_lanes(float step) { return step; }
#else
HWY_INLINE GridLine in_lanes(const grid::Line& line, bool is_stochastic) { return {line, is_stochastic}; }
HWY_INLINE Values in_lanes(float step) { return hn::Set(ValueTag(), step); }
#endif

constexpr auto kFormOfByte = grid::kFormOfByte;  // internal, so that no load of its address comes first

inline constexpr std::size_t kGridSlack = 16;
inline constexpr std::size_t kWidestBlock = kGridBlock / 8 * kGridWidest;

// In place of GridRandom: rounding to nearest.
struct GridNearest {
  HWY_INLINE const std::uint8_t* at(std::size_t, std::size_t) const { return nullptr; }
};

// ---- Encoding.

// The n values at `source`, or where these are fewer than a block's, a copy with zeros behind it.
HWY_INLINE const float* whole_block(const float* source, std::size_t n, float (&padded)[kGridBlock]) {
  if (HWY_LIKELY(n == kGridBlock)) return source;
  std::memcpy(padded, source, n * sizeof(float));
  std::fill(padded + n, padded + kGridBlock, 0.0f);
  return padded;
}

// Writes one block after another, and their forms.
class GridBlocks {
 public:
  // `forms`: four bits for each block. Nothing is written beyond `end`.
  HWY_INLINE GridBlocks(std::uint8_t* forms, std::uint8_t* to, std::uint8_t* end) : forms_(forms), to_(to), end_(end) {}

  // Up to kGridPart elements that share a line, in blocks: an even number, but at the end of the slice. `random`: a
  // byte for each, or null. All are quantized before the first is packed, because a block's form comes late: what a
  // processor has looked ahead would wait for it.
  template <GridRange kRange>
  HWY_INLINE void put(const grid::Line& shared, const float* source, std::size_t count, const std::uint8_t* random) {
    const auto line = in_lanes(shared, random != nullptr);
    const auto bytes_of = [&](std::size_t b) { return random != nullptr ? random + b * kGridBlock : nullptr; };
    const std::size_t whole = count / kGridBlock, rest = count % kGridBlock;
    GridIntegers integers[kPartBlocks];
    std::uint8_t forms[kPartBlocks + 8] = {};
    for (std::size_t b = 0; b < whole; ++b) {
      forms[b] = quantize<kRange>(source + b * kGridBlock, line, bytes_of(b), integers[b]);
    }
    float last[kGridBlock];
    if (HWY_UNLIKELY(rest > 0)) {
      forms[whole] = quantize<kRange>(whole_block(source + whole * kGridBlock, rest, last), line, bytes_of(whole),
                                      integers[whole]);
    }
    // Raw blocks take more, but these are a bound's only, whose slices have room for as many.
    const bool has_room = static_cast<std::size_t>(end_ - to_) >= whole * kWidestBlock + kGridSlack;
    std::uint8_t* to = to_;  // in a register, which to_ is not
    for (std::size_t b = 0; b < whole; ++b) {
      if (HWY_LIKELY(has_room && forms[b] != grid::kRawForm)) {
        pack(integers[b], forms[b], to);
        to += grid::block_bytes(forms[b], kGridBlock);
      } else {
        to = put_rare(integers[b], forms[b], source + b * kGridBlock, kGridBlock, line, bytes_of(b), to);
      }
    }
    if (rest > 0) to = put_rare(integers[whole], forms[whole], last, rest, line, bytes_of(whole), to);
    to_ = to;
    put_forms(forms, whole + (rest > 0 ? 1 : 0));
  }
  // Blocks of zeros.
  void skip(std::size_t blocks) {
    std::memset(forms_, 0, (blocks + 1) / 2);
    forms_ += (blocks + 1) / 2;
  }
  HWY_INLINE std::uint8_t* end() const { return to_; }

 private:
  static constexpr std::size_t kPartBlocks = kGridPart / kGridBlock;

  static HWY_INLINE std::uint8_t form_of(std::uint32_t largest) {
    return static_cast<std::uint8_t>(HWY_LIKELY(largest < 256) ? kFormOfByte[largest] : grid::form_of(largest));
  }

  static HWY_INLINE void pack(const GridIntegers& z, std::uint32_t form, std::uint8_t* to) {
    if (HWY_LIKELY(form < 8)) {
      grid_pack_bytes(z, static_cast<int>(form), to);
    } else {
      grid_pack_words(z, grid::width_of(form), to);
    }
  }
  // Returns the form.
  template <GridRange kRange, class Lanes>
  static HWY_INLINE std::uint8_t quantize(const float* block, const Lanes& line, const std::uint8_t* random,
                                          GridIntegers& z) {
    return z.quantize<kRange>(block, line, random) ? form_of(z.largest()) : std::uint8_t{grid::kRawForm};
  }

  // The first n elements of any block, of which nothing is written beyond them.
  template <class Lanes>
  static HWY_NOINLINE std::uint8_t* put_rare(const GridIntegers& z, std::uint32_t form, const float* values,
                                             std::size_t n, const Lanes& line, const std::uint8_t* random,
                                             std::uint8_t* to) {
    std::uint8_t block[kWidestBlock + kGridSlack];
    float kept[kGridBlock];
    const std::size_t bytes = grid::block_bytes(form, n);
    if (form == grid::kRawForm) {
      grid_keep(values, line, random, kept);
      std::memcpy(to, kept, bytes);
    } else {
      pack(z, form, block);
      std::memcpy(to, block, bytes);
    }
    return to + bytes;
  }

  // `forms`: a byte for each, and zeros.
  HWY_INLINE void put_forms(const std::uint8_t* forms, std::size_t count) {
    const EightBits bits(4);
    for (std::size_t i = 0; i < count; i += 8) {
      std::uint64_t eight;
      std::memcpy(&eight, forms + i, 8);
      eight = bits.close(eight);
      if (HWY_LIKELY(i + 8 <= count)) {
        std::memcpy(forms_, &eight, 4);
        forms_ += 4;
      } else {
        const std::size_t bytes = (count - i + 1) / 2;
        std::memcpy(forms_, &eight, bytes);
        forms_ += bytes;
      }
    }
  }

  std::uint8_t* forms_;
  std::uint8_t* to_;
  std::uint8_t* const end_;
};

// Elements [begin, end) of a slice, which share a line.
template <GridRange kRange, class Random>
HWY_INLINE void encode_run(const grid::Line& line, const float* source, std::size_t begin, std::size_t end,
                           Random& random, GridBlocks& blocks) {
  for (std::size_t i = begin; i < end; i += kGridPart) {
    const std::size_t n = std::min(kGridPart, end - i);
    blocks.put<kRange>(line, source + i, n, random.at(i, n));
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
      // Raw blocks take more, but these are a bound's only, whose slices have room for as many.
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
