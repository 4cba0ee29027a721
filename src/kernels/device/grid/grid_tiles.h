// A group's work on tiles of grid jobs, one after another: the sum of a tile's parts, whose payloads have blocks of
// their own widths, its integers, and what a payload has of them.
#pragma once

#include "kernels/device/bucket_program.h"
#include "kernels/device/grid/grid_octets.h"
#include "kernels/device/grid/grid_squares.h"
#include "kernels/device/random_bytes.h"
#include "kernels/device/slice_values.h"

namespace qccl::kernels::device {

// Where a bucket's line comes from.
enum class Lines { given, stored, measured };

// The sums and integers of tiles, one after another.
template <class Group>
class GridTiles {
 public:
  QCCL_HD GridTiles(const SliceJob& job, GridMemory& memory, Group& group)
      : job_(job), format_(grid_format(job.format)), places_(format_, job.count), memory_(memory), group_(group) {}

  QCCL_HD const GridFormat& format() const { return format_; }
  QCCL_HD Tile piece(std::uint32_t index) const {
    const std::uint64_t elements = grid_piece_elements(job_), begin = index * elements;
    return {static_cast<std::uint32_t>(begin),
            static_cast<std::uint32_t>(lesser<std::uint64_t>(job_.count, begin + elements))};
  }
  // Elements that share a line.
  QCCL_HD std::uint32_t bucket() const { return format_.is_relative() ? format_.bucket_size : kGridPieceElements; }

  // The next tile begins with this element.
  QCCL_HD void begin(std::uint32_t element) {
    group_.each([&](int lane, GridLane&) {
      if (lane <= kMostSources) memory_.next[lane] = 0;
    });
    for (int i = 0; i < job_.source_count; ++i) {
      if (job_.sources[i].kind == SourceKind::payload) find_blocks(payload_of(i), element, i);
    }
  }
  // The same of the job's payloads, whose forms have been written.
  QCCL_HD void begin_payloads(std::uint32_t element) { find_blocks(job_.payloads[0], element, kOwnPayload); }

  // Calls use(tile, line) for each tile of a bucket, which begins with the next tile, with the finished sum in the
  // lanes. A line to be measured takes a pass or two before. All passes share one sum(), a kernel's largest part.
  template <class Use>
  QCCL_HD void each_sum(Tile bucket, Lines lines, Use use) {
    grid::Line line = grid::line_of(lines == Lines::stored ? stored_step(bucket) : format_.step);
    Pass pass = lines == Lines::measured ? Pass::squares : Pass::values;
    GridSquares squares(memory_, group_);
    QCCL_ROLL
    while (true) {
      if (pass != Pass::values) squares.begin();
      each_tile(bucket, kTileElements, [&](Tile tile) {
        sum(tile);
        if (pass == Pass::values) {
          use(tile, line);
        } else {
          squares.add(pass == Pass::wide_squares);
        }
      });
      if (pass == Pass::values) return;
      pass = squares.end(format_.relative, bucket.end - bucket.begin, pass);
      if (pass == Pass::values) line = grid::line_of(grid::read_step(memory_.step));
    }
  }

  // Of the sum, with the forms of its blocks.
  QCCL_HD void quantize(Tile tile, const grid::Line& line) {
    group_.each([&](int lane, GridLane& own) {
      const RandomOctets random(job_, tile.runs(lane));
      QCCL_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        const Octet<float>& x = own.held.of[k];
        own.zigzags.of[k] = job_.format.stochastic ? zigzags(line, x, random.octet(k)) : zigzags(line, x);
        own.largest.of[k] = largest_of(line, x, own.zigzags.of[k]);
      }
    });
    join(group_, &GridLane::largest, kBlockLanes, [](GridLane::Largest& a, const GridLane::Largest& b) {
      QCCL_UNROLL
      for (int k = 0; k < kHeld; ++k) a.of[k] = greater(a.of[k], b.of[k]);
    });
    group_.each([&](int lane, GridLane& own) {
      if (lane % kBlockLanes != 0) return;
      QCCL_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        const std::uint32_t largest = own.largest.of[k];
        const std::uint32_t form = largest >= kOutOfRange ? grid::kRawForm : grid::form_of(largest);
        memory_.forms[block_of(lane, k)] = static_cast<std::uint8_t>(form);
      }
    });
  }

  // The measured one.
  QCCL_HD void write_step(Tile bucket) {
    const std::uint32_t index = bucket.begin / format_.bucket_size;
    group_.each([&](int lane, GridLane&) {
      if (lane < job_.payload_count) store_header(job_.payloads[lane], index, memory_.step);
    });
  }

  QCCL_HD void write_forms(Tile tile) {
    group_.each([&](int lane, GridLane&) {
      const int block = 2 * lane;
      if (block >= kGroupLanes || tile.block_elements(block) == 0) return;
      const auto pair = static_cast<std::byte>(memory_.forms[block] | memory_.forms[block + 1] << 4);
      const std::size_t at = places_.forms + tile.begin / (2 * kGridBlock) + static_cast<std::size_t>(lane);
      for (int i = 0; i < job_.payload_count; ++i) job_.payloads[i][at] = pair;
    });
  }

  // Of what quantize() left.
  QCCL_HD void write_blocks(Tile tile, const grid::Line& line) {
    place_blocks(tile, kOwnPayload);
    const std::size_t begin = places_.blocks + memory_.offsets[0];
    std::byte* const bytes = memory_.bytes + reinterpret_cast<std::uintptr_t>(job_.payloads[0] + begin) % 16;
    group_.each([&](int lane, GridLane& own) {
      QCCL_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        const int count = tile.runs(lane).run(k).count;
        if (count > 0) store_octet_of(bytes - memory_.offsets[0], lane, k, count, own, line);
      }
    });
    group_.each([&](int lane, GridLane& own) {
      for (int i = 0; i < job_.payload_count; ++i) {
        copy_bytes(job_.payloads[i] + begin, bytes, own.scan.total, static_cast<std::uint32_t>(lane));
      }
    });
  }

  // What the payload makes of values, whose integers are z.
  QCCL_HD Octet<float> sent_of(const grid::Line& line, const Octet<float>& x, const Octet<std::uint32_t>& z) const {
    Octet<float> y = values_of(line.step, z);
    if (format_.is_relative()) return y;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      if (!grid::is_in_range(x.of[i], line)) y.of[i] = x.of[i];
    }
    return y;
  }

 private:
  QCCL_HD const std::byte* payload_of(int source) const {
    return static_cast<const std::byte*>(job_.sources[source].data);
  }
  QCCL_HD float stored_step(Tile bucket) const {
    return grid::read_step(load_header<std::uint16_t>(job_.payloads[0], bucket.begin / format_.bucket_size));
  }

  // Leaves the finished sum in the lanes, with missing elements 0.
  QCCL_HD void sum(Tile tile) {
    QCCL_ROLL
    for (int i = 0; i < job_.source_count; ++i) {
      if (job_.sources[i].kind == SourceKind::payload) {
        read_forms(payload_of(i), tile);
        place_blocks(tile, i);
      }
      group_.each([&](int lane, GridLane& own) { add(i, tile, lane, own); });
    }
    group_.each([&](int lane, GridLane& own) {
      finish_sum(job_, own.held);
      canonize(job_, own.held);
      clear_missing(tile.runs(lane), own.held);
    });
  }

  // Adds up the bytes of the blocks before an element, the first of a piece.
  QCCL_HD void find_blocks(const std::byte* payload, std::uint32_t element, int index) {
    const std::byte* const forms = payload + places_.forms;
    const std::uint32_t bytes = element / (2 * static_cast<std::uint32_t>(kGridBlock));
    group_.each([&](int lane, GridLane& own) {
      own.scan = {};
      QCCL_ROLL
      for (std::uint32_t at = 8 * static_cast<std::uint32_t>(lane); at < bytes; at += 8 * kGroupLanes) {
        const auto word = load_code_bytes(forms + at, static_cast<int>(lesser(bytes - at, 8u)));
        own.scan.total += bytes_of_blocks(word);
      }
    });
    join(group_, &GridLane::scan, kGroupLanes, [](GridLane::Scan& a, const GridLane::Scan& b) { a.total += b.total; });
    group_.each([&](int lane, GridLane& own) {
      if (lane == 0) memory_.next[index] = own.scan.total;
    });
  }

  QCCL_HD void read_forms(const std::byte* payload, Tile tile) {
    group_.each([&](int lane, GridLane&) {
      std::uint32_t form = 0;
      if (tile.block_elements(lane) > 0) {
        const std::uint32_t block = tile.begin / static_cast<std::uint32_t>(kGridBlock) + static_cast<unsigned>(lane);
        form = static_cast<std::uint32_t>(payload[places_.forms + block / 2]) >> block % 2 * 4 & 15u;
      }
      memory_.forms[lane] = static_cast<std::uint8_t>(form);
    });
  }

  // Of the tile's blocks, whose forms are in memory; a lane has one of them. Goes on to the next tile.
  QCCL_HD void place_blocks(Tile tile, int index) {
    group_.each([&](int lane, GridLane& own) {
      const auto bytes = grid::block_bytes(memory_.forms[lane], tile.block_elements(lane));
      own.scan = {0, static_cast<std::uint32_t>(bytes)};
    });
    for (int step = 1; step < kGroupLanes; step *= 2) {
      group_.swap(&GridLane::scan, step, [&](int lane, GridLane& own, const GridLane::Scan& other) {
        if ((lane & step) != 0) own.scan.before += other.total;
        own.scan.total += other.total;
      });
    }
    group_.each([&](int lane, GridLane& own) { memory_.offsets[lane] = memory_.next[index] + own.scan.before; });
    group_.each([&](int lane, GridLane& own) {
      if (lane == 0) memory_.next[index] += own.scan.total;
    });
  }

  QCCL_HD void add(int index, Tile tile, int lane, GridLane& own) const {
    const Source& source = job_.sources[index];
    const Runs runs = tile.runs(lane);
    Octets<float> part;
    if (source.kind == SourceKind::payload) {
      part = decode(payload_of(index), runs, lane);
    } else {
      part = load_floats<kHeld>(source.kind == SourceKind::floats ? DataType::float32 : job_.type, source.data, runs);
    }
    adjust_part(job_, source, runs, part);
    if (index == 0) {
      own.held = part;
    } else {
      add_part(job_.op, own.held, part);
    }
  }

  QCCL_HD Octets<float> decode(const std::byte* payload, const Runs& runs, int lane) const {
    Octets<float> values{};
    QCCL_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const Run run = runs.run(k);
      if (run.count > 0) values.of[k] = decode_octet(payload, run, lane, k);
    }
    return values;
  }
  QCCL_HD Octet<float> decode_octet(const std::byte* payload, Run run, int lane, int k) const {
    const int block = block_of(lane, k);
    const auto octet = static_cast<std::uint32_t>(lane % kBlockLanes);
    const std::uint32_t form = memory_.forms[block];
    const std::byte* const at = payload + places_.blocks + memory_.offsets[block];
    if (form == grid::kRawForm) return load_octet<float>(at, {octet * kOctet, run.count});
    float step = format_.step;
    if (format_.is_relative()) {
      step = grid::read_step(load_header<std::uint16_t>(payload, run.first / format_.bucket_size));
    }
    const int width = grid::width_of(form);
    return values_of(step, load_zigzags(at + octet * static_cast<std::uint32_t>(width), width));
  }

  QCCL_HD static void clear_missing(const Runs& runs, Octets<float>& values) {
    if (runs.are_whole(kHeld)) return;
    QCCL_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const int count = runs.run(k).count;
      QCCL_UNROLL
      for (int i = 0; i < kOctet; ++i) {
        if (i >= count) values.of[k].of[i] = 0;
      }
    }
  }

  QCCL_HD std::uint32_t largest_of(const grid::Line& line, const Octet<float>& x, const Octet<std::uint32_t>& z) const {
    std::uint32_t largest = 0;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      largest = greater(largest, z.of[i]);
      if (!format_.is_relative() && !grid::is_in_range(x.of[i], line)) largest = kOutOfRange;
    }
    return largest;
  }

  // `blocks`: where offset 0 would be.
  QCCL_HD void store_octet_of(std::byte* blocks, int lane, int k, int count, const GridLane& own,
                              const grid::Line& line) const {
    const int block = block_of(lane, k);
    const auto octet = static_cast<std::uint32_t>(lane % kBlockLanes);
    const std::uint32_t form = memory_.forms[block];
    std::byte* const at = blocks + memory_.offsets[block];
    if (form == grid::kRawForm) {
      store_octet(at, {octet * kOctet, count}, sent_of(line, own.held.of[k], own.zigzags.of[k]));
      return;
    }
    const int width = grid::width_of(form);
    store_zigzags(at + octet * static_cast<std::uint32_t>(width), width, own.zigzags.of[k]);
  }

  const SliceJob& job_;
  const GridFormat format_;
  const GridPlaces places_;
  GridMemory& memory_;
  Group& group_;
};

}  // namespace qccl::kernels::device
