// Tables for taking bytes out of a list and putting them back: selected by a bit mask, eight at a time, or three of
// each four.
#pragma once

#include <array>
#include <cstdint>

namespace qccl::kernels {

using ByteIndices = std::array<std::array<std::uint8_t, 8>, 256>;

// [mask][i]: the index of the i-th byte selected by the mask, among eight; 0x80 past the last.
constexpr ByteIndices make_compact_indices() {
  ByteIndices indices{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    indices[mask].fill(0x80);
    std::size_t count = 0;
    for (unsigned at = 0; at < 8; ++at) {
      if ((mask >> at & 1u) != 0) indices[mask][count++] = static_cast<std::uint8_t>(at);
    }
  }
  return indices;
}

// The reverse, [mask][i]: the index of the selected byte that belongs at i; 0x80 where the mask has no bit.
constexpr ByteIndices make_spread_indices() {
  ByteIndices indices{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    std::uint8_t count = 0;
    for (unsigned at = 0; at < 8; ++at) indices[mask][at] = (mask >> at & 1u) != 0 ? count++ : 0x80;
  }
  return indices;
}

// Indices that bring the three lower bytes of each four in sixteen to the front, and back.
alignas(16) inline constexpr std::uint8_t kCloseThrees[16] = {0,  1,  2,  4,  5,    6,    8,    9,
                                                              10, 12, 13, 14, 0x80, 0x80, 0x80, 0x80};
alignas(16) inline constexpr std::uint8_t kOpenThrees[16] = {0, 1, 2, 0x80, 3, 4,  5,  0x80,
                                                             6, 7, 8, 0x80, 9, 10, 11, 0x80};

inline constexpr ByteIndices kCompactIndices = make_compact_indices();
inline constexpr ByteIndices kSpreadIndices = make_spread_indices();

}  // namespace qccl::kernels
