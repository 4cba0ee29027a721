#include "kernels/lossless/lossless.h"

#include <array>
#include <bit>
#include <cstring>

// Compressing the bytes of a vector by a mask, and expanding them, is most of the work.
#define HWY_WANT_AVX3_DL 1

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lossless/lossless.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/lossless/lossless_reference.h"
#include "kernels/simd_dispatch.h"
#if !QCCL_SCALAR
#include "kernels/lossless/lossless_rest-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

#if QCCL_SCALAR

using lossless::kBlock;

std::size_t lossless_encode(const float* source, std::size_t n, std::byte* target) {
  std::byte* to = target;
  for (std::size_t begin = 0; begin < n; begin += kBlock) {
    std::uint32_t words[kBlock];
    const std::size_t count = std::min(kBlock, n - begin);
    std::memcpy(words, source + begin, count * sizeof(float));
    to = reference::lossless_encode_block(words, count, to);
  }
  return static_cast<std::size_t>(to - target);
}

bool lossless_decode(const std::byte* source, std::size_t bytes, const float* addend, float* target, std::size_t n) {
  reference::LosslessReader reader(source, bytes);
  for (std::size_t begin = 0; begin < n && !reader.failed(); begin += kBlock) {
    std::uint32_t words[kBlock];
    const std::size_t count = std::min(kBlock, n - begin);
    reference::lossless_decode_block(reader, words, count);
    if (addend == nullptr) std::memcpy(target + begin, words, count * sizeof(float));
    if (addend != nullptr) reference::reduce<float>(ReduceOp::sum, target + begin, addend + begin, words, 0, count);
  }
  return !reader.failed() && reader.left() == 0;
}

#else

// Each block of 1024 words is scanned once for its exponents, which go through the levels in L1; its other bits are
// written after them. Blocks that are not a multiple of a group are processed in a padded copy.

using lossless::Form;
using lossless::kBlock;
using lossless::kLevels;
using lossless::Window;

// ---- Encoding.

// A block's exponents, level by level.
struct CodedExponents {
  Window window;
  std::array<std::size_t, kLevels + 1> counts{};
  Planes planes[kLevels];
  alignas(64) std::uint8_t lists[kLevels + 1][kListBytes];

  // Codes the exponents in lists[0].
  HWY_INLINE void code(Window chosen, std::size_t n) {
    window = chosen;
    counts[0] = n;
    for (std::size_t level = 0; level < kLevels; ++level) {
      const lossless::Symbols symbols = window.symbols(level);
      fill_group(symbols[0], lists[level] + counts[level]);
      counts[level + 1] = split_level(lists[level], counts[level], symbols, planes[level], lists[level + 1]);
    }
  }
  // Writes up to kLosslessSlack bytes beyond the exponents.
  HWY_INLINE void put(std::uint8_t* to) const {
    for (std::size_t level = 0; level < kLevels; ++level) {
      const std::size_t bytes = lossless::plane_bytes(counts[level]);
      std::memcpy(to, planes[level].low, sizeof(planes[level].low));
      std::memcpy(to + bytes, planes[level].high, sizeof(planes[level].high));
      to += 2 * bytes;
    }
    for (std::size_t i = 0; i < counts[kLevels]; i += kGroup) std::memcpy(to + i, lists[kLevels] + i, kGroup);
  }
};
static_assert(sizeof(Planes::low) <= kLosslessSlack && kGroup <= kLosslessSlack);

inline bool all_float16(const std::uint32_t* words, std::size_t n) {
  alignas(64) float block[kBlock];
  std::uint16_t halves[kBlock];
  std::memcpy(block, words, n * sizeof(float));
  kernels::narrow_exactly(DataType::float16, halves, block, n);
  kernels::widen_exactly(DataType::float16, block, halves, n);
  return std::memcmp(block, words, n * sizeof(float)) == 0;
}

inline void put_float16(const std::uint32_t* words, std::size_t n, std::uint8_t* to) {
  alignas(64) float block[kBlock];
  std::memcpy(block, words, n * sizeof(float));
  kernels::narrow_exactly(DataType::float16, to, block, n);
}

inline std::uint8_t* put_plain(Form form, const std::uint32_t* words, std::size_t n, std::uint8_t* to) {
  *to++ = static_cast<std::uint8_t>(form);
  if (form == Form::words) std::memcpy(to, words, 4 * n);
  if (form == Form::upper_halves) put_upper_halves(words, n, to);
  if (form == Form::float16) put_float16(words, n, to);
  return to + lossless::plain_bytes(form, n) - 1;
}

// Encodes blocks one after another.
class BlockEncoder {
 public:
  explicit HWY_INLINE BlockEncoder(std::uint8_t* to) : to_(to) {}

  // n words; whole groups are readable.
  void put(const std::uint32_t* words, std::size_t n) {
    const Scan scan = scan_block(words, n);
    if (is_constant(words, n, scan)) {
      *to_ = static_cast<std::uint8_t>(Form::constant);
      std::memcpy(to_ + 1, words, 4);
      to_ += 5;
      return;
    }
    exponents_.code(lossless::choose_window(scan.exponent_sum, scan.nonzero_exponents, n), n);
    const Form coded = lossless::coded_form(scan.any_bits);
    const std::size_t bytes = lossless::coded_bytes(coded, exponents_.counts);
    const Form form = lossless::choose_form(coded, bytes, n, [&] { return all_float16(words, n); });
    if (form != coded) {
      to_ = put_plain(form, words, n, to_);
      return;
    }
    put_coded(form, words, n);
    to_ += bytes;
  }
  HWY_INLINE std::uint8_t* end() const { return to_; }

 private:
  static HWY_INLINE bool is_constant(const std::uint32_t* words, std::size_t n, const Scan& scan) {
    std::uint32_t first;
    std::memcpy(&first, words, sizeof(first));
    return scan.exponent_sum == n * (first >> 23 & 0xFFu) && std::memcmp(words, words + 1, 4 * (n - 1)) == 0;
  }

  // Also writes the other bits to where they belong if the block takes the same form as the previous one.
  HWY_INLINE Scan scan_block(const std::uint32_t* words, std::size_t n) {
    std::uint8_t* const exponents = exponents_.lists[0];
    written_ = n == kBlock ? previous_form_ : Form::constant;
    if (n == kBlock) {
      Scan scan;
      with_rest(previous_form_, [&, rest = to_ + 2](auto kind) HWY_ATTR {
        scan = scan_words(words, n, exponents,
                          [=](const FourVectors& t, std::size_t i) HWY_ATTR { decltype(kind)::put_four(t, i, rest); });
      });
      return scan;
    }
    std::uint32_t first;
    std::memcpy(&first, words, sizeof(first));
    const std::size_t whole = groups_of(n) * kGroup;
    return scan_words(words, whole, exponents, [](const FourVectors&, std::size_t) {}).without(whole - n, first);
  }

  HWY_INLINE void put_coded(Form form, const std::uint32_t* words, std::size_t n) {
    const std::uint8_t zero = exponents_.window.zero_is_symbol ? lossless::kZeroIsSymbol : 0;
    to_[0] = static_cast<std::uint8_t>(static_cast<std::uint8_t>(form) | zero);
    to_[1] = exponents_.window.base;
    std::uint8_t* const rest = to_ + 2;
    if (form != written_) with_rest(form, [=](auto kind) HWY_ATTR { decltype(kind)::put(words, n, rest); });
    exponents_.put(rest + lossless::rest_bytes(form, n));
    previous_form_ = form;
  }

  std::uint8_t* to_;
  Form previous_form_ = Form::coded_24;
  Form written_ = Form::constant;  // the form whose other bits the scan has written; constant: none
  CodedExponents exponents_;
};

std::size_t lossless_encode(const float* source, std::size_t n, std::byte* target) {
  BlockEncoder encoder(reinterpret_cast<std::uint8_t*>(target));
  std::size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) encoder.put(reinterpret_cast<const std::uint32_t*>(source + i), kBlock);
  if (i < n) {
    alignas(64) std::uint32_t block[kBlock];
    const std::size_t left = n - i;
    std::memcpy(block, source + i, left * sizeof(float));
    std::fill(block + left, block + groups_of(left) * kGroup, block[0]);
    encoder.put(block, left);
  }
  return static_cast<std::size_t>(reinterpret_cast<std::byte*>(encoder.end()) - target);
}

// ---- Decoding.

// Vectors and planes may be read this far beyond a block.
inline constexpr std::size_t kReadSlack = 2 * kGroup;
inline constexpr std::size_t kMostBlockBytes = 1 + 4 * kBlock + kBlock;  // more than any block takes

// The bytes not read yet.
struct Input {
  const std::uint8_t* at;
  std::size_t left;

  // The next `bytes`, or null.
  HWY_INLINE const std::uint8_t* take(std::size_t bytes) {
    if (bytes > left) return nullptr;
    const std::uint8_t* taken = at;
    at += bytes;
    left -= bytes;
    return taken;
  }
};

// One level's planes in the input.
struct LevelInput {
  const std::byte* low;
  const std::byte* high;

  // Counts the codes 3 among n; false if planes of n codes are missing or invalid.
  HWY_INLINE bool take(Input& input, std::size_t n, std::size_t& rest) {
    const std::size_t bytes = lossless::plane_bytes(n);
    const std::uint8_t* planes = input.take(2 * bytes);
    if (planes == nullptr) return false;
    low = reinterpret_cast<const std::byte*>(planes);
    high = low + bytes;
    rest = 0;
    for (std::size_t begin = 0; begin < n; begin += kGroup) {
      std::uint64_t low_bits, high_bits;
      std::memcpy(&low_bits, low + begin / 8, 8);
      std::memcpy(&high_bits, high + begin / 8, 8);
      const std::size_t used = n - begin;
      const std::uint64_t mask = used >= kGroup ? ~std::uint64_t{0} : (std::uint64_t{1} << used) - 1;
      rest += static_cast<std::size_t>(std::popcount(low_bits & high_bits & mask));
    }
    return n % 8 == 0 || (planes[bytes - 1] | planes[2 * bytes - 1]) >> (n % 8) == 0;
  }
};

// n exponents, the deepest level first; null if they are missing. `lists`: room for those of two levels.
HWY_INLINE const std::uint8_t* get_exponents(Input& input, Window window, std::size_t n,
                                             std::uint8_t (&lists)[2][kListBytes]) {
  LevelInput levels[kLevels];
  std::size_t counts[kLevels + 1] = {n};
  for (std::size_t level = 0; level < kLevels; ++level) {
    if (!levels[level].take(input, counts[level], counts[level + 1])) return nullptr;
  }
  const std::uint8_t* rest = input.take(counts[kLevels]);
  if (rest == nullptr) return nullptr;
  for (std::size_t level = kLevels; level-- > 0;) {
    std::uint8_t* list = lists[level % 2];
    join_level(levels[level].low, levels[level].high, counts[level], window.symbols(level), rest, list);
    rest = list;
  }
  return rest;
}

template <class Finish>
HWY_INLINE bool get_coded(Input& input, Form form, bool zero_is_symbol, std::size_t n, float* target, Finish& finish) {
  const std::uint8_t* base = input.take(1);
  if (base == nullptr || *base < lossless::kLeastBase || *base > lossless::kMostBase) return false;
  const std::uint8_t* rest = input.take(lossless::rest_bytes(form, n));
  if (rest == nullptr) return false;
  alignas(64) std::uint8_t lists[2][kListBytes];
  const std::uint8_t* exponents = get_exponents(input, {*base, zero_is_symbol}, n, lists);
  if (exponents == nullptr) return false;
  with_rest(form, [=, &finish](auto kind) HWY_ATTR { decltype(kind)::get(rest, exponents, n, target, finish); });
  return form != Form::coded_11 || Rest11::is_clean(rest, n);
}

template <class Finish>
HWY_INLINE bool get_plain(Input& input, Form form, std::size_t n, float* target, Finish& finish) {
  const std::uint8_t* bytes = input.take(form == Form::constant ? 4 : lossless::plain_bytes(form, n) - 1);
  if (bytes == nullptr) return false;
  alignas(64) std::uint32_t words[kBlock];
  if (form == Form::constant) {
    std::uint32_t word;
    std::memcpy(&word, bytes, 4);
    std::fill_n(words, groups_of(n) * kGroup, word);
  }
  if (form == Form::words) std::memcpy(words, bytes, 4 * n);
  if (form == Form::upper_halves) get_upper_halves(bytes, n, words);
  if (form == Form::float16) kernels::widen_exactly(DataType::float16, reinterpret_cast<float*>(words), bytes, n);
  for (std::size_t i = 0; i < n; i += hn::Lanes(ListTag())) {
    store_words(FourVectors::load(words + i).each([](Words v) HWY_ATTR { return turned(v); }), target, i, finish);
  }
  return true;
}

// Decodes n words from the front of the input, which is readable for kReadSlack beyond its end. Writes whole groups.
template <class Finish>
HWY_INLINE bool decode_block(Input& input, std::size_t n, float* target, Finish& finish) {
  const std::uint8_t* first = input.take(1);
  if (first == nullptr) return false;
  const auto form = static_cast<Form>(*first & ~lossless::kZeroIsSymbol);
  const bool zero_is_symbol = (*first & lossless::kZeroIsSymbol) != 0;
  if (form > Form::coded_11) return false;
  if (form >= Form::coded_24) return get_coded(input, form, zero_is_symbol, n, target, finish);
  return !zero_is_symbol && get_plain(input, form, n, target, finish);
}

// Calls decode_block() on the block at the front of the slice, in place if enough bytes follow it.
template <class Finish>
HWY_INLINE bool decode_next(Input& slice, std::size_t n, float* target, Finish& finish) {
  if (slice.left >= kMostBlockBytes + kReadSlack) return decode_block(slice, n, target, finish);
  std::uint8_t padded[kMostBlockBytes + 2 * kReadSlack];
  Input copy{padded, std::min(slice.left, kMostBlockBytes)};
  std::memcpy(padded, slice.at, copy.left);
  std::memset(padded + copy.left, 0, kReadSlack);
  return decode_block(copy, n, target, finish) && slice.take(static_cast<std::size_t>(copy.at - padded)) != nullptr;
}

template <class Finish>
HWY_NOINLINE bool decode_slice(const std::byte* source, std::size_t bytes, const float* addend, float* target,
                               std::size_t n) {
  const Finish finish(addend);
  Input slice{reinterpret_cast<const std::uint8_t*>(source), bytes};
  std::size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    Finish part = finish.from(i);
    if (!decode_next(slice, kBlock, target + i, part)) return false;
    part.end(target + i, 0, kBlock);
  }
  if (i < n) {
    alignas(64) float block[kBlock];
    Assign assign;
    if (!decode_next(slice, n - i, block, assign)) return false;
    Finish part = finish.from(i);
    for (std::size_t at = 0; at < n - i; ++at) part.store(block[at], target + i, at);
  }
  return slice.left == 0;
}

bool lossless_decode(const std::byte* source, std::size_t bytes, const float* addend, float* target, std::size_t n) {
  if (addend == nullptr) return decode_slice<Assign>(source, bytes, addend, target, n);
  return decode_slice<AddTo>(source, bytes, addend, target, n);
}

#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {

QCCL_KERNEL(std::size_t, lossless_encode, (const float* source, std::size_t n, std::byte* target), (source, n, target))
QCCL_KERNEL(bool, lossless_decode,
            (const std::byte* source, std::size_t bytes, const float* addend, float* target, std::size_t n),
            (source, bytes, addend, target, n))

}  // namespace qccl::kernels
#endif  // HWY_ONCE
