#include "transport/shm/shm_cells.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/log.h"

namespace qccl::shm {
namespace {

// Calls body(i) for the bits of `mask`, low to high, until it returns true; returns whether one did.
template <class Body>
bool any_bit(std::uint64_t mask, Body body) {
  for (; mask != 0; mask &= mask - 1) {
    if (body(static_cast<std::uint32_t>(std::countr_zero(mask)))) return true;
  }
  return false;
}

// Prefetches the lines of a payload after its header line, all at once, before the payload is read. Beyond the first
// few lines the reading itself hides the latency.
void prefetch_payload(const CellBuffer& buffer, std::size_t bytes) {
  constexpr std::size_t kInHeaderLine = kCacheLineBytes - offsetof(CellBuffer, payload);
  constexpr std::size_t kMost = 8 * kCacheLineBytes;
  for (std::size_t at = kInHeaderLine; at < std::min(bytes, kMost); at += kCacheLineBytes) {
    __builtin_prefetch(buffer.payload + at);
  }
}

constexpr std::uint64_t bit(std::uint32_t cell) { return std::uint64_t{1} << cell; }

}  // namespace

ShmCells::ShmCells(WorldRank rank, int world, Area& own, std::vector<Peer> peers)
    : rank_(rank),
      own_(own),
      peers_(std::move(peers)),
      index_of_rank_(static_cast<std::size_t>(world), -1),
      views_(kBoardCells * peers_.size()) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    index_of_rank_[peers_[i].rank.index()] = static_cast<int>(i);
  }
}

// ---- opening and closing

std::uint32_t ShmCells::own_cell(std::uint64_t group) const {
  if ((open_ & bit(last_cell_)) != 0 && groups_[last_cell_] == group) return last_cell_;
  const bool found = any_bit(open_, [&](std::uint32_t cell) {
    if (groups_[cell] != group) return false;
    last_cell_ = cell;
    return true;
  });
  return found ? last_cell_ : kNoCell;
}

bool ShmCells::may_reuse(std::uint32_t cell) const {
  for (const Peer& peer : peers_) {
    if (peer.lost) continue;
    // Acquire: pairs with the release in close(), after the peer's last read of this cell.
    const std::uint64_t open = peer.area->open.load(std::memory_order_acquire);
    const bool in_use = any_bit(open, [&](std::uint32_t other) {
      return peer.area->groups[other].load(std::memory_order_relaxed) == groups_[cell];
    });
    if (in_use) return false;
  }
  return true;
}

// Picks a cell. A group has at most one cell, so that a search never finds an old one.
std::uint32_t ShmCells::pick_cell(std::uint64_t group) const {
  std::uint32_t picked = kNoCell;
  const bool was_closed = any_bit(known_ & ~open_, [&](std::uint32_t cell) {
    picked = cell;
    return groups_[cell] == group;
  });
  if (was_closed) return may_reuse(picked) ? picked : kNoCell;
  if (~known_ != 0) return static_cast<std::uint32_t>(std::countr_one(known_));
  const bool reusable = any_bit(~open_, [&](std::uint32_t cell) {
    picked = cell;
    return may_reuse(cell);
  });
  return reusable ? picked : kNoCell;
}

bool ShmCells::open(std::uint64_t group) {
  if (own_cell(group) != kNoCell) return true;
  const std::uint32_t cell = pick_cell(group);
  if (cell == kNoCell) return false;
  groups_[cell] = group;
  open_ |= bit(cell);
  known_ |= bit(cell);
  for (auto& buffer : own_.cells[cell].buffers) buffer.sequence.store(0, std::memory_order_relaxed);
  // Release, here and below: a reader that finds the group also finds the sequences of this group, or 0.
  own_.groups[cell].store(group, std::memory_order_release);
  own_.known.store(known_, std::memory_order_release);
  own_.open.store(open_, std::memory_order_release);
  own_.openings.store(own_.openings.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  for (std::size_t i = 0; i < peers_.size(); ++i) view(cell, i) = {};
  return true;
}

void ShmCells::close(std::uint64_t group) {
  const std::uint32_t cell = own_cell(group);
  if (cell == kNoCell) return;
  open_ &= ~bit(cell);
  // Release: pairs with may_reuse() of the peers.
  own_.open.store(open_, std::memory_order_release);
}

void ShmCells::forget(WorldRank rank) {
  const int index = index_of_rank_[rank.index()];
  if (index >= 0) peers_[static_cast<std::size_t>(index)].lost = true;
}

// ---- publishing and reading

void ShmCells::publish(std::uint64_t group, std::uint64_t sequence, std::uint64_t digest, ConstBytes payload) {
  const std::uint32_t cell = own_cell(group);
  QCCL_CHECK(cell != kNoCell && payload.size() <= kBoardPayloadBytes);
  CellBuffer& buffer = own_.cells[cell].buffers[sequence & 1];
  buffer.digest.store(digest, std::memory_order_relaxed);
  buffer.payload_bytes.store(static_cast<std::uint32_t>(payload.size()), std::memory_order_relaxed);
  if (!payload.empty()) std::memcpy(buffer.payload, payload.data(), payload.size());
  // Release: pairs with the acquire in find_published().
  buffer.sequence.store(sequence, std::memory_order_release);
}

// Rings only ranks that have the group open, since no other rank can wait for this.
void ShmCells::ring(std::uint64_t group) {
  const std::uint32_t cell = own_cell(group);
  QCCL_CHECK(cell != kNoCell);
  full_fence();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (peer.bell.asleep() && find(*peer.area, group, view(cell, i))) peer.bell.ring();
  }
}

// Makes view.cell the cell of `group`, if there is one.
bool ShmCells::find(const Area& area, std::uint64_t group, View& view) const {
  // Acquire, here and below: pairs with the releases in open().
  if (view.cell != kNoCell && area.groups[view.cell].load(std::memory_order_acquire) == group) return true;
  view.cell = kNoCell;
  const std::uint64_t openings = area.openings.load(std::memory_order_acquire);
  if (view.searched == openings) return false;
  const bool found = any_bit(area.known.load(std::memory_order_acquire), [&](std::uint32_t cell) {
    view.cell = cell;
    return area.groups[cell].load(std::memory_order_acquire) == group;
  });
  if (found) return true;
  view.cell = kNoCell;
  view.searched = openings;
  return false;
}

std::optional<ExchangeCell> ShmCells::find_published(const Area& area, std::uint64_t group, View& view,
                                                     std::uint64_t sequence) {
  if (!find(area, group, view)) return std::nullopt;
  const CellBuffer& buffer = area.cells[view.cell].buffers[sequence & 1];
  // Acquire: pairs with the release in publish(); digest, size and payload are there.
  if (buffer.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
  // Between find() and here the cell may have passed to another group. That group stored its name before it published,
  // so a reader that saw its sequence also sees its name.
  if (area.groups[view.cell].load(std::memory_order_relaxed) != group) return std::nullopt;
  ExchangeCell found;
  found.sequence = sequence;
  found.digest = buffer.digest.load(std::memory_order_relaxed);
  found.payload_bytes = buffer.payload_bytes.load(std::memory_order_relaxed);
  found.payload = buffer.payload;
  prefetch_payload(buffer, found.payload_bytes);
  return found;
}

std::optional<ExchangeCell> ShmCells::read(std::uint64_t group, WorldRank peer, std::uint64_t sequence) {
  const std::uint32_t cell = own_cell(group);
  QCCL_CHECK(cell != kNoCell);
  if (peer == rank_) {
    View own{.cell = cell};
    return find_published(own_, group, own, sequence);
  }
  const int index = index_of_rank_[peer.index()];
  QCCL_CHECK(index >= 0);
  View& seen = view(cell, static_cast<std::size_t>(index));
  auto found = find_published(*peers_[static_cast<std::size_t>(index)].area, group, seen, sequence);
  seen.awaited = found ? 0 : sequence;
  if (found && found->payload_bytes > kBoardPayloadBytes) {
    fault_ = peer;
    return std::nullopt;
  }
  return found;
}

bool ShmCells::awaited_cell_arrived() {
  bool there = false;
  any_bit(open_, [&](std::uint32_t cell) {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      View& seen = view(cell, i);
      if (seen.awaited == 0 || !find_published(*peers_[i].area, groups_[cell], seen, seen.awaited)) continue;
      seen.awaited = 0;
      there = true;
    }
    return false;
  });
  return there;
}

std::optional<WorldRank> ShmCells::take_fault() {
  const auto taken = fault_;
  fault_.reset();
  return taken;
}

}  // namespace qccl::shm
