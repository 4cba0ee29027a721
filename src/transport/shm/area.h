// The area of a rank: its own memory, mapped by every other rank of the host. It holds the rank's sleep word and its
// board cells.
//
// | offset | bytes      | content                                                              |
// |--------|------------|----------------------------------------------------------------------|
// | 0      | 4          | sleep word (bell.h): the owner and whoever rings it                  |
// | 4      | 60         | zero                                                                 |
// | 64     | 8          | openings: how often the owner has opened a cell                      |
// | 72     | 8          | known: bit i set once cell i was opened; its group can be looked up  |
// | 80     | 8          | open: bit i set while the owner takes part in cell i's group         |
// | 88     | 40         | zero                                                                 |
// | 128    | 64 x 8     | group of each cell                                                   |
// | 640    | 3456       | zero                                                                 |
// | 4096   | 64 x 16512 | cells: two generations, for even and for odd sequences               |
//
// One generation of a cell. A small payload shares the cache line of its header.
//
// | offset | bytes | content                                                 |
// |--------|-------|---------------------------------------------------------|
// | 0      | 8     | sequence published last, 0 if none                      |
// | 8      | 8     | digest of the call                                      |
// | 16     | 4     | payload_bytes, at most 8192                             |
// | 20     | 12    | zero                                                    |
// | 32     | 8192  | payload                                                 |
// | 8224   | 32    | zero                                                    |
//
// Only the owner writes, except to the sleep word.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/shm/bell.h"
#include "transport/shm/layout.h"

namespace qccl::shm {

inline constexpr std::uint32_t kBoardCells = 64;

struct alignas(kCacheLineBytes) Generation {
  std::atomic<std::uint64_t> sequence;
  // Atomics, relaxed: they only make a reader load each of them once. `sequence` publishes them.
  std::atomic<std::uint64_t> digest;
  std::atomic<std::uint32_t> payload_bytes;
  std::byte zero[12];
  std::byte payload[kBoardPayloadBytes];
};

struct Cell {
  Generation generations[2];
};

struct Area {
  SleepWord sleep_word;
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> openings;
  std::atomic<std::uint64_t> known;
  std::atomic<std::uint64_t> open;
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> groups[kBoardCells];
  alignas(kPageBytes) Cell cells[kBoardCells];
};

static_assert(sizeof(Generation) == 8256 && offsetof(Generation, payload_bytes) == 16);
static_assert(offsetof(Generation, payload) == 32 && sizeof(Cell) == 16512);
static_assert(offsetof(Area, openings) == 64 && offsetof(Area, known) == 72 && offsetof(Area, open) == 80);
static_assert(offsetof(Area, groups) == 128 && offsetof(Area, cells) == 4096);
static_assert(sizeof(Area) == 259 * kPageBytes);

}  // namespace qccl::shm
