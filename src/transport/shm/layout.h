// The layout of the memory that the ranks of a host share.
//
// Pair memory, one per pair of ranks: a frame queue for each direction.
//
// | offset      | bytes       | content                                              |
// |-------------|-------------|------------------------------------------------------|
// | 0           | queue_bytes | queue from the lower rank to the higher              |
// | queue_bytes | queue_bytes | queue from the higher rank to the lower              |
//
// Frame queue: frames lie in slots of two sizes. A slot belongs to the sender until a descriptor passes it to the
// receiver, and to the receiver until a return passes it back, so neither ring can hold more words than there are
// slots.
//
// | offset | bytes       | content                                                      |
// |--------|-------------|--------------------------------------------------------------|
// | 0      | 1024        | descriptors (a Ring): sender to receiver, frames in order    |
// | 1024   | 1024        | returns (a Ring): receiver to sender, slots in any order     |
// | 2048   | 4           | starved: 1 while the sender waits for slots                  |
// | 2052   | 2044        | zero                                                         |
// | 4096   | 64 x 4160   | small slots, 0 to 63: control frames and small data          |
// | 270336 | n x 266240  | large slots, 64 to 63 + n: frames of up to kMaxFrameBytes    |
//
// Area, one per rank, mapped by all other ranks of the host. Only its owner writes to it, except to the sleep word.
//
// | offset | bytes      | content                                                              |
// |--------|------------|----------------------------------------------------------------------|
// | 0      | 4          | sleep word (bell.h): its owner and the ranks that ring it            |
// | 4      | 60         | zero                                                                 |
// | 64     | 8          | openings: how often the owner has opened a cell                      |
// | 72     | 8          | known: bit i is set once cell i was opened; its group is valid       |
// | 80     | 8          | open: bit i is set while the owner takes part in cell i's group      |
// | 88     | 40         | zero                                                                 |
// | 128    | 64 x 8     | group of each cell                                                   |
// | 640    | 3456       | zero                                                                 |
// | 4096   | 64 x 16512 | cells: two buffers each, for even and for odd sequences              |
//
// Buffer of a cell. A small payload shares the cache line of its header.
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
// Each polled cache line has one writer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace qccl::shm {

// Both sides must be built with the same version; otherwise the link is refused.
inline constexpr std::uint32_t kLayoutVersion = 3;

inline constexpr std::size_t kCacheLineBytes = 64;
inline constexpr std::size_t kPageBytes = 4096;

// Address range of a rank's heap (ShmHeap). Addresses are never used twice; only allocated blocks have pages. This
// is the maximum: a limit on file sizes makes it smaller.
inline constexpr std::uint64_t kHeapBytes = std::uint64_t{1} << 46;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// More than the number of slots, so that a ring is never full.
inline constexpr std::uint32_t kRingWords = 128;

// Words from one writer to one reader: see frame_queue.h.
struct alignas(kCacheLineBytes) Ring {
  std::atomic<std::uint64_t> words[kRingWords];
};

inline constexpr std::uint32_t kSmallSlots = 64;
inline constexpr std::uint32_t kMinLargeSlots = 4;
inline constexpr std::uint32_t kMaxLargeSlots = 16;
inline constexpr std::uint32_t kMaxSlots = kSmallSlots + kMaxLargeSlots;
// A page of payload behind a header.
inline constexpr std::size_t kSmallSlotBytes = 4096 + kFrameHeaderBytes;
inline constexpr std::size_t kLargeSlotBytes = round_up(kMaxFrameBytes, kPageBytes);

struct QueueControl {
  Ring descriptors;
  Ring returns;
  // Written by the sender, read by the receiver only when the sender sleeps: see bell.h.
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> starved;
};

inline constexpr std::size_t kSmallSlotsOffset = kPageBytes;
inline constexpr std::size_t kLargeSlotsOffset = kSmallSlotsOffset + kSmallSlots * kSmallSlotBytes;

constexpr std::size_t queue_bytes(std::uint32_t large_slots) {
  return kLargeSlotsOffset + large_slots * kLargeSlotBytes;
}
constexpr std::size_t pair_bytes(std::uint32_t large_slots) { return 2 * queue_bytes(large_slots); }

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(std::atomic<std::uint64_t>) == 8);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);
static_assert(sizeof(Ring) == 1024 && kMaxSlots < kRingWords);
static_assert(offsetof(QueueControl, returns) == 1024 && offsetof(QueueControl, starved) == 2048);
static_assert(sizeof(QueueControl) <= kPageBytes);
static_assert(kSmallSlotBytes == 4160 && kLargeSlotBytes == 266240 && kLargeSlotsOffset == 270336);
static_assert(kSmallSlotBytes % kCacheLineBytes == 0 && kLargeSlotsOffset % kPageBytes == 0);

// Odd while its owner sleeps or is about to: see bell.h.
struct alignas(kCacheLineBytes) SleepWord {
  std::atomic<std::uint32_t> phase;
};

inline constexpr std::uint32_t kBoardCells = 64;

struct alignas(kCacheLineBytes) CellBuffer {
  std::atomic<std::uint64_t> sequence;
  // Atomics, relaxed: they only make a reader load each of them once. `sequence` publishes them.
  std::atomic<std::uint64_t> digest;
  std::atomic<std::uint32_t> payload_bytes;
  std::byte zero[12];
  std::byte payload[kBoardPayloadBytes];
};

struct Cell {
  CellBuffer buffers[2];
};

struct Area {
  SleepWord sleep_word;
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> openings;
  std::atomic<std::uint64_t> known;
  std::atomic<std::uint64_t> open;
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> groups[kBoardCells];
  alignas(kPageBytes) Cell cells[kBoardCells];
};

static_assert(sizeof(CellBuffer) == 8256 && offsetof(CellBuffer, payload_bytes) == 16);
static_assert(offsetof(CellBuffer, payload) == 32 && sizeof(Cell) == 16512);
static_assert(offsetof(Area, openings) == 64 && offsetof(Area, known) == 72 && offsetof(Area, open) == 80);
static_assert(offsetof(Area, groups) == 128 && offsetof(Area, cells) == 4096);
static_assert(sizeof(Area) == 259 * kPageBytes);

}  // namespace qccl::shm
