// What a group holds of a grid job's tiles, and the sum of the squares of a bucket's tiles: each column of a tile in a
// lane, as grid::squares_in(), in float32, and where that is no good sum once more in double.
#pragma once

#include "kernels/device/grid/grid_octets.h"
#include "kernels/device/group.h"

namespace qccl::kernels::device {

struct GridLane {
  struct Largest {
    std::uint32_t of[kHeld];  // zigzag integer of each octet's block, kOutOfRange above all
  };
  struct Scan {
    std::uint32_t before;  // bytes of the blocks before the lane's
    std::uint32_t total;
  };

  Octets<float> held;  // the sum of the tile's parts
  Octets<std::uint32_t> zigzags;
  Largest largest;
  Scan scan;
  float squares;
  double wide_squares;
  bool again;  // the sum of squares is to be made in double
};

inline constexpr std::uint32_t kOutOfRange = 0x10000;
inline constexpr int kOwnPayload = kMostSources;  // the index behind the sources

struct GridMemory {
  alignas(16) std::byte bytes[kTileElements * sizeof(float) + 16];  // values, or a tile's blocks
  std::uint32_t next[kMostSources + 1];                             // where each payload's next block begins
  std::uint32_t marked[kMostSources + 1];
  std::uint32_t offsets[kGroupLanes];  // of a tile's blocks
  std::uint16_t step;
  std::uint8_t forms[kGroupLanes];
};

// A pass through the tiles of a bucket.
enum class Pass { squares, wide_squares, values };

template <class Group>
class GridSquares {
 public:
  QCCL_HD GridSquares(GridMemory& memory, Group& group) : memory_(memory), group_(group) {}

  // Before the bucket's first tile, to which end() goes back.
  QCCL_HD void begin() {
    group_.each([&](int lane, GridLane& own) {
      own.squares = 0;
      own.wide_squares = 0;
      if (lane <= kMostSources) memory_.marked[lane] = memory_.next[lane];
    });
  }

  // The tile's values, in the lanes, missing ones 0.
  QCCL_HD void add(bool wide) {
    group_.each([&](int lane, GridLane& own) {
      QCCL_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        const auto first = static_cast<std::uint32_t>((k * kGroupLanes + lane) * kOctet);
        store_octet(memory_.bytes, {first, kOctet}, own.held.of[k]);
      }
    });
    group_.each([&](int lane, GridLane& own) {
      if (wide) {
        own.wide_squares = add_column(lane, own.wide_squares);
      } else {
        own.squares = add_column(lane, own.squares);
      }
    });
  }

  // After the bucket's last tile: the pass that follows, through the same tiles. The step of its `count` elements is in
  // memory before that of values.
  QCCL_HD Pass end(float relative, std::uint32_t count, Pass pass) {
    group_.each([&](int lane, GridLane&) {
      if (lane <= kMostSources) memory_.next[lane] = memory_.marked[lane];
    });
    if (pass == Pass::squares) {
      join(group_, &GridLane::squares, kGroupLanes, [](float& a, float b) { a += b; });
      group_.each([](int, GridLane& own) {
        own.wide_squares = double{own.squares};
        own.again = !grid::is_good_sum(own.squares);
      });
      if (group_.any(&GridLane::again)) return Pass::wide_squares;
    } else {
      join(group_, &GridLane::wide_squares, kGroupLanes, [](double& a, double b) { a += b; });
    }
    group_.each([&](int lane, GridLane& own) {
      if (lane == 0) memory_.step = grid::stored_step(relative, own.wide_squares, count);
    });
    return Pass::values;
  }

 private:
  template <class T>
  QCCL_HD T add_column(int lane, T sum) const {
    constexpr int kRows = 8;
    QCCL_ROLL
    for (int first = 0; first < kGroupLanes; first += kRows) {
      QCCL_UNROLL
      for (int row = first; row < first + kRows; ++row) {
        const auto at = static_cast<std::size_t>(row * kGroupLanes + lane) * sizeof(float);
        const T value{load_aligned<float>(memory_.bytes + at)};
        sum += value * value;
      }
    }
    return sum;
  }

  GridMemory& memory_;
  Group& group_;
};

}  // namespace qccl::kernels::device
