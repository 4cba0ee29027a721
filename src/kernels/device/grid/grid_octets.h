// Octets of a slice of grid.h as a lane sees them: integers, the bytes of those, and values. Every rule is that of
// grid_reference.h.
#pragma once

#include "kernels/device/codecs.h"
#include "kernels/grid/grid_reference.h"

namespace qccl::kernels::device {

// What a group holds at once: a block for each of its lanes. A block's octets are those of kBlockLanes neighbours.
inline constexpr std::uint32_t kTileElements = kGroupLanes * static_cast<std::uint32_t>(kGridBlock);
static_assert(kTileElements == kPieceElements);
inline constexpr int kBlockLanes = static_cast<int>(kGridBlock) / kOctet;

// Elements of a slice.
struct Tile {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  QCCL_HD constexpr Runs runs(int lane) const {
    return {lesser(begin + static_cast<std::uint32_t>(lane) * kOctet, end), kGroupLanes * kOctet, end};
  }
  // Those of block `index`, which may be none.
  QCCL_HD constexpr std::uint32_t block_elements(int index) const {
    constexpr std::uint32_t kBlock = kGridBlock;
    const std::uint32_t first = begin + static_cast<std::uint32_t>(index) * kBlock;
    return lesser(kBlock, end - lesser(first, end));
  }
};

// The block of a tile that has octet k of a lane.
QCCL_HD constexpr int block_of(int lane, int k) { return (k * kGroupLanes + lane) / kBlockLanes; }

// Calls use(part) for the parts of a tile of this size, the last one shorter.
template <class Use>
QCCL_HD void each_tile(Tile whole, std::uint32_t elements, Use use) {
  QCCL_ROLL
  for (std::uint32_t begin = whole.begin; begin < whole.end;) {
    const std::uint32_t end = begin + lesser(elements, whole.end - begin);
    use(Tile{begin, end});
    begin = end;
  }
}

// ---- zigzag integers

// 0 for a bucket whose step is NaN.
QCCL_HD inline Octet<std::uint32_t> zigzags(const grid::Line& line, const Octet<float>& x) {
  Octet<std::uint32_t> z{};
  if (line.step != line.step) return z;
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) z.of[i] = grid::zigzag(grid::integer_of(x.of[i], line));
  return z;
}
QCCL_HD inline Octet<std::uint32_t> zigzags(const grid::Line& line, const Octet<float>& x,
                                            const Octet<std::uint32_t>& random) {
  Octet<std::uint32_t> z{};
  if (line.step != line.step) return z;
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) {
    z.of[i] = grid::zigzag(grid::integer_of(x.of[i], line, static_cast<std::uint8_t>(random.of[i])));
  }
  return z;
}

QCCL_HD inline Octet<float> values_of(float step, const Octet<std::uint32_t>& z) {
  Octet<float> y;
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) {
    y.of[i] = step == step ? static_cast<float>(grid::unzigzag(z.of[i])) * step : canonical_nan();
  }
  return y;
}

// From 9 bits on a byte of each, then their other bits.
QCCL_HD_COLD inline Octet<std::uint32_t> load_wide_zigzags(const std::byte* from, int width) {
  Octet<std::uint32_t> z = unpacked(load_code_bytes(from, 8), 8);
  const auto upper = unpacked(load_code_bytes(from + 8, width - 8), width - 8);
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) z.of[i] |= upper.of[i] << 8;
  return z;
}
QCCL_HD_COLD inline void store_wide_zigzags(std::byte* to, int width, Octet<std::uint32_t> z) {
  Octet<std::uint32_t> lower, upper;
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) {
    lower.of[i] = z.of[i] & 0xFFu;
    upper.of[i] = z.of[i] >> 8;
  }
  store_code_bytes(to, 8, packed(lower, 8));
  store_code_bytes(to + 8, width - 8, packed(upper, width - 8));
}

QCCL_HD inline Octet<std::uint32_t> load_zigzags(const std::byte* from, int width) {
  return width <= 8 ? unpacked(load_code_bytes(from, width), width) : load_wide_zigzags(from, width);
}
QCCL_HD inline void store_zigzags(std::byte* to, int width, const Octet<std::uint32_t>& z) {
  if (width <= 8) return store_code_bytes(to, width, packed(z, width));
  store_wide_zigzags(to, width, z);
}

// ---- payloads

// Where the parts of a payload begin.
struct GridPlaces {
  std::size_t forms;
  std::size_t blocks;

  QCCL_HD GridPlaces(const GridFormat& format, std::uint32_t count)
      : forms(grid_step_bytes(format, count)), blocks(forms + grid_form_bytes(count)) {}
};

// The bytes of sixteen whole blocks, whose forms fill a word.
QCCL_HD inline std::uint32_t bytes_of_blocks(std::uint64_t forms) {
  std::uint32_t bytes = 0;
  QCCL_ROLL
  for (; forms != 0; forms >>= 4) {
    bytes += static_cast<std::uint32_t>(grid::block_bytes(static_cast<std::uint32_t>(forms) & 15u, kGridBlock));
  }
  return bytes;
}

}  // namespace qccl::kernels::device
