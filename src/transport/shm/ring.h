// A ring of words in shared memory, one writer and one reader, without shared positions: each word carries its lap
// number, so the reader polls only the word it wants next. A small frame then moves one cache line for its descriptor
// and one for its header.
//
// | bits  | field | meaning                                                        |
// |-------|-------|----------------------------------------------------------------|
// | 0-15  | lap   | position / kRingWords + 1, modulo 2^16; memory begins at lap 0 |
// | 16-31 | slot  |                                                                |
// | 32-63 | bytes | of the frame; 0 in a return                                    |
//
// The writer never overtakes the reader: there are fewer slots than words, and a slot comes back only after the reader
// has taken the word that passed it.
#pragma once

#include <cstdint>

#include "transport/shm/layout.h"

namespace qccl::shm {

struct RingItem {
  std::uint32_t slot = 0;
  std::uint32_t bytes = 0;
};

constexpr std::uint16_t lap_at(std::uint64_t position) { return static_cast<std::uint16_t>(position / kRingWords + 1); }

constexpr std::uint64_t pack_ring_word(std::uint16_t lap, RingItem item) {
  return std::uint64_t{item.bytes} << 32 | std::uint64_t{item.slot & 0xFFFFu} << 16 | lap;
}

// Private to the writing side. One thread.
class RingWriter {
 public:
  explicit RingWriter(Ring& ring) : ring_(&ring) {}

  // Release: pairs with the acquire of RingReader::peek, which therefore sees the slot's contents (or, for a return,
  // that its bytes have been read).
  void push(RingItem item) {
    ring_->words[position_ % kRingWords].store(pack_ring_word(lap_at(position_), item), std::memory_order_release);
    ++position_;
  }

 private:
  Ring* ring_;
  std::uint64_t position_ = 0;
};

// Private to the reading side. One thread.
class RingReader {
 public:
  enum class State { empty, ready, corrupt };

  explicit RingReader(const Ring& ring) : ring_(&ring) {}

  // True unless peek() would return empty.
  bool arrived() const { return lap_of(load()) != static_cast<std::uint16_t>(lap_at(position_) - 1); }

  // Looks at the next word. `item` is exactly what the other process wrote: not validated.
  State peek(RingItem& item) const {
    const std::uint64_t word = load();
    if (lap_of(word) == lap_at(position_)) {
      item = {static_cast<std::uint32_t>(word >> 16) & 0xFFFFu, static_cast<std::uint32_t>(word >> 32)};
      return State::ready;
    }
    const bool old = lap_of(word) == static_cast<std::uint16_t>(lap_at(position_) - 1);
    return old ? State::empty : State::corrupt;
  }
  void advance() { ++position_; }

 private:
  // Acquire: pairs with the release of RingWriter::push.
  std::uint64_t load() const { return ring_->words[position_ % kRingWords].load(std::memory_order_acquire); }
  static std::uint16_t lap_of(std::uint64_t word) { return static_cast<std::uint16_t>(word); }

  const Ring* ring_;
  std::uint64_t position_ = 0;
};

}  // namespace qccl::shm
