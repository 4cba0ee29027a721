// Lossless coding of float32 words: every bit comes back, NaN payloads included. Dispatched at run time to the widest
// instruction set; the same bytes on all. The rule, in scalar code: lossless_reference.h.
//
// The idea: neighbours in a tensor have few different exponents, while signs and mantissas are noise. So exponents are
// coded in a window around the most common one, and the other bits are sent unchanged, without the low mantissa bits if
// they are all 0: values that were bfloat16 or float16 keep their 16 bits, minus the bits that the exponents save.
//
// A slice of n words is cut into blocks of kLosslessBlock, the last one shorter, without gaps between them. A block of
// n words begins with one byte, its form:
//
// | form        | then                                                      | for words that                         |
// |-------------|-----------------------------------------------------------|----------------------------------------|
// | 0           | 4 bytes: the word                                         | are all the same                       |
// | 1           | 4 n: the words                                            |                                        |
// | 2           | 2 n: their upper halves                                   | are bfloat16: the lower 16 bits are 0  |
// | 3           | 2 n: float16                                              | are float16 (reduce.h)                 |
// | 4 (or 0x84) | b, then 3 n: the 24 other bits, then exponents            |                                        |
// | 5 (or 0x85) | b, then n: the 8 others, then exponents                   | have 0 in the lower 16 bits            |
// | 6 (or 0x86) | b, then n: 8 others, 3 bit planes: 3 others, exponents    | have 0 in the lower 13 bits            |
//
// Exponents, the 8 bits below the sign, go through three levels. Each level has three symbols; an element is coded in
// two bits, 0..2 for a symbol and 3 for none of them. Elements of code 3 go to the next level; after the last level
// their exponents follow. With the base b, a byte of 5..252, the symbols are, in the order of their codes,
//
// | level | forms 4, 5, 6     | 0x84, 0x85, 0x86 (if many words are 0)    |
// |-------|-------------------|-------------------------------------------|
// | 1     | b, b+1, b+2       | 0, b+1, b+2                               |
// | 2     | b-2, b-1, b+3     | b-1, b, b+3                               |
// | 3     | b-5, b-4, b-3     | b-4, b-3, b-2                             |
//
// | bytes                          | content                                                            |
// |--------------------------------|--------------------------------------------------------------------|
// | 2 ceil(n1 / 8), n1 = n         | level 1: bit plane of the codes' low bits, then of their high bits |
// | 2 ceil(n2 / 8)                 | level 2, n2 = the number of codes 3 of level 1                     |
// | 2 ceil(n3 / 8)                 | level 3                                                            |
// | n4                             | exponents                                                          |
//
// A bit plane has the first element in the lowest bit of its first byte; the unused bits of the last byte are 0. Turn a
// word left by one bit, so that the exponent is on top and the sign at the bottom: the 24 other bits are then the three
// lower bytes, little-endian; the 8 others are the third byte's upper seven bits with the sign in the lowest. The 3
// other bits are bits 13, 14, 15 of the word.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qccl::kernels {

inline constexpr std::size_t kLosslessBlock = 1024;
// Number of bytes that the encoder may write beyond those it returns.
inline constexpr std::size_t kLosslessSlack = 128;

// Number of bytes that lossless_encode() may write: a byte more a block than the words themselves, plus the slack.
constexpr std::size_t lossless_max_bytes(std::size_t n) {
  return n * 4 + n / kLosslessBlock + (n % kLosslessBlock != 0 ? 1 : 0) + kLosslessSlack;
}

// Returns the number of bytes of the slice; `target` has room for lossless_max_bytes(n). Any alignment.
std::size_t lossless_encode(const float* source, std::size_t n, std::byte* target);

// target[i] = decoded[i], or with an addend target[i] = addend[i] + decoded[i], NaN results canonical. `addend` is
// null, or `target`, or does not overlap it. False if `source` is not exactly the bytes of a slice of n words; the
// contents of `target` are then unspecified.
[[nodiscard]] bool lossless_decode(const std::byte* source, std::size_t bytes, const float* addend, float* target,
                                   std::size_t n);

}  // namespace qccl::kernels
