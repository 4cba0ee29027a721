// A group's work on tiles of grid jobs, one after another: the sum of a tile's parts, whose payloads have blocks of
// their own widths, its integers, and what a payload has of them.
#pragma once

#include "kernels/device/bucket_program.h"
#include "kernels/device/grid/grid_octets.h"
#include "kernels/device/random_bytes.h"
#include "kernels/device/slice_values.h"

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

  // The stored step of a bucket, which begins with the next tile. Its tiles are yet to be taken.
  QCCL_HD std::uint16_t measure(Tile bucket) {
    add_squares(bucket, false);
    group_.each([](int, GridLane& own) { own.again = !grid::is_good_sum(own.squares); });
    const bool again = group_.any(&GridLane::again);
    if (again) add_squares(bucket, true);
    group_.each([&](int lane, GridLane& own) {
      const double squares = again ? own.wide_squares : double{own.squares};
      if (lane == 0) memory_.step = grid::stored_step(format_.relative, squares, bucket.end - bucket.begin);
    });
    return memory_.step;
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

  QCCL_HD void write_step(std::uint32_t bucket, std::uint16_t step) {
    group_.each([&](int lane, GridLane&) {
      if (lane < job_.payload_count) store_header(job_.payloads[lane], bucket, step);
    });
  }
  QCCL_HD std::uint16_t read_step(std::uint32_t bucket) const {
    return load_header<std::uint16_t>(job_.payloads[0], bucket);
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

  // Of the bucket's elements in float32 or double, each column of a tile in a lane, as grid::squares_in().
  QCCL_HD void add_squares(Tile bucket, bool wide) {
    group_.each([&](int lane, GridLane& own) {
      own.squares = 0;
      own.wide_squares = 0;
      if (lane <= kMostSources) memory_.marked[lane] = memory_.next[lane];
    });
    each_tile(bucket, kTileElements, [&](Tile tile) {
      sum(tile);
      group_.each([&](int lane, GridLane& own) {
        QCCL_UNROLL
        for (int k = 0; k < kHeld; ++k) {
          const auto first = static_cast<std::uint32_t>((k * kGroupLanes + lane) * kOctet);
          store_octet(memory_.bytes, {first, kOctet}, own.held.of[k]);
        }
      });
      group_.each([&](int lane, GridLane& own) {
        QCCL_ROLL
        for (int row = 0; row < kGroupLanes && tile.block_elements(row) > 0; ++row) {
          const auto at = static_cast<std::size_t>(row * kGroupLanes + lane) * sizeof(float);
          const auto value = load_aligned<float>(memory_.bytes + at);
          if (wide) {
            own.wide_squares += double{value} * double{value};
          } else {
            own.squares += value * value;
          }
        }
      });
    });
    join(group_, &GridLane::squares, kGroupLanes, [](float& a, float b) { a += b; });
    join(group_, &GridLane::wide_squares, kGroupLanes, [](double& a, double b) { a += b; });
    group_.each([&](int lane, GridLane&) {
      if (lane <= kMostSources) memory_.next[lane] = memory_.marked[lane];
    });
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
