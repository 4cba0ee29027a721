// Jobs of grid, a tile at a time. The widths of all blocks before a block say where it lies, so a payload takes two
// programs, one launch behind the other: the first writes steps and forms, the second adds up the forms before its
// piece and writes the blocks. Both add up the job's parts, and come to the same integers. A job without payloads takes
// the second one alone.
#pragma once

#include "kernels/device/grid/grid_tiles.h"

namespace qccl::kernels::device {

// Writes the steps and forms of a job's payloads.
class GridFormsProgram {
 public:
  using Lane = GridLane;
  using Memory = GridMemory;

  QCCL_HD explicit GridFormsProgram(const SliceJob& job) : job_(job) {}

  template <class Group>
  QCCL_HD void run(Memory& memory, Group& group, std::uint32_t index) const {
    if (job_.payload_count == 0) return;
    GridTiles<Group> tiles(job_, memory, group);
    const Tile piece = tiles.piece(index);
    tiles.begin(piece.begin);
    const bool is_relative = tiles.format().is_relative();
    each_tile(piece, tiles.bucket(), [&](Tile bucket) {
      tiles.each_sum(bucket, is_relative ? Lines::measured : Lines::given, [&](Tile tile, const grid::Line& line) {
        tiles.quantize(tile, line);
        tiles.write_forms(tile);
      });
      if (is_relative) tiles.write_step(bucket);
    });
  }

 private:
  const SliceJob& job_;
};

// Writes everything else.
class GridProgram {
 public:
  using Lane = GridLane;
  using Memory = GridMemory;

  QCCL_HD explicit GridProgram(const SliceJob& job) : job_(job), is_quantized_(device::is_quantized(job)) {}

  template <class Group>
  QCCL_HD void run(Memory& memory, Group& group, std::uint32_t index) const {
    GridTiles<Group> tiles(job_, memory, group);
    const Tile piece = tiles.piece(index);
    tiles.begin(piece.begin);
    if (job_.payload_count > 0) tiles.begin_payloads(piece.begin);
    const Lines lines = lines_of(tiles.format());
    each_tile(piece, is_quantized_ ? tiles.bucket() : kGridPieceElements, [&](Tile bucket) {
      tiles.each_sum(bucket, lines, [&](Tile tile, const grid::Line& line) {
        if (is_quantized_) tiles.quantize(tile, line);
        if (job_.payload_count > 0) tiles.write_blocks(tile, line);
        group.each([&](int lane, GridLane& own) { write(tiles, tile.runs(lane), own, line); });
      });
    });
  }

 private:
  QCCL_HD Lines lines_of(const GridFormat& format) const {
    if (!is_quantized_ || !format.is_relative()) return Lines::given;
    return job_.payload_count > 0 ? Lines::stored : Lines::measured;
  }

  template <class Tiles>
  QCCL_HD void write(const Tiles& tiles, const Runs& runs, GridLane& own, const grid::Line& line) const {
    if (runs.first == runs.end) return;
    if (job_.outputs_sent || job_.keeps_residual) {
      Octets<float> sent;
      QCCL_UNROLL
      for (int k = 0; k < kHeld; ++k) sent.of[k] = tiles.sent_of(line, own.held.of[k], own.zigzags.of[k]);
      if (job_.keeps_residual) write_residual(job_, runs, own.held, sent);
      if (job_.outputs_sent) own.held = sent;
    }
    write_values(job_, runs, own.held);
  }

  const SliceJob& job_;
  const bool is_quantized_;
};

}  // namespace qccl::kernels::device
