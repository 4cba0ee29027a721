// The entropy stage of grid.h: eight interleaved rANS coders (J. Duda, arXiv 1311.2540, in the byte-aligned form of F.
// Giesen, arXiv 1402.3392) with static tables. The same code on every instruction set.
//
// Elements are coded in groups of 128. A group's class says what its zigzag integers z, up to 255, are coded by:
//
// | class | elements                                                                                        |
// |-------|-------------------------------------------------------------------------------------------------|
// | 0     | are 0                                                                                           |
// | 1..14 | symbol min(z >> k, A - 1) by the frequencies of table `class`; A - 1 stands for itself and more |
// | 15    | blocks of grid.h: where that takes no more bits, and where a z is above 255 or float32          |
//
// A coder's state x is in 2^16..2^32 - 1, and 2^16 at the start of encoding. With a symbol's frequency f and the sum s
// of the frequencies before it, of 1024 together: x = 2^10 (x / f) + s + x mod f, after the lower 16 bits of x went to
// the words if x >= 2^22 f. Element i of a group is coded by coder i mod 8, the last element of the last group first,
// so that the decoder reads forwards.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace qccl::kernels::grid {

inline constexpr std::size_t kGroup = 128;
inline constexpr std::size_t kSegment = 32768;  // elements with coders of their own
inline constexpr std::size_t kCoders = 8;
inline constexpr std::uint32_t kFirstState = 1u << 16;
inline constexpr std::uint32_t kZeros = 0, kBlocks = 15;  // classes
inline constexpr std::size_t kMostSymbols = 32;

// The states of the coders.
using States = std::array<std::uint32_t, kCoders>;

// The class of a group with these integers, whose sum of magnitudes is `magnitudes` for n elements; the missing ones
// are 0. `block_bits`: what class 15 would take.
std::uint32_t choose_class(const std::uint8_t* z, std::uint32_t magnitudes, std::size_t n, std::size_t block_bits);

// Bits of z that are sent as they are.
int low_bits(std::uint32_t entropy_class);
// The symbol that stands for larger ones; their z >> low_bits() is sent in a byte.
std::uint32_t escape(std::uint32_t entropy_class);

// Codes a group's n integers, a multiple of 8, backwards. Returns the new front of the words, at most n before `front`.
std::uint16_t* encode_symbols(std::uint32_t entropy_class, const std::uint8_t* z, std::size_t n, States& states,
                              std::uint16_t* front);

// Reverses encode_symbols(): n symbols, a multiple of 8. Returns the next word, at most n after `words`; one more is
// readable.
const std::uint16_t* decode_symbols(std::uint32_t entropy_class, const std::uint16_t* words, States& states,
                                    std::size_t n, std::uint8_t* symbols);

}  // namespace qccl::kernels::grid
