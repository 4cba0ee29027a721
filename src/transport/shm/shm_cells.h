// The board in shared memory (transport.h's ExchangeCells): cells in each rank's area (layout.h).
//
// A closed cell keeps its last payloads, because a peer may still be about to read them: a rank ends an operation once
// it has read all others, not once all others have read its cell. The memory is reused once no peer has the group open.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/shm/bell.h"
#include "transport/shm/layout.h"
#include "transport/transport.h"

namespace qccl::shm {

// One thread. Owns none of the memory, which must outlive it.
class ShmCells final : public ExchangeCells {
 public:
  // A rank whose area this one maps.
  struct Peer {
    WorldRank rank;
    const Area* area;
    PeerBell bell;
    bool lost = false;
  };

  ShmCells(WorldRank rank, int world, Area& own, std::vector<Peer> peers);

  // Also false if `group` was closed recently and a peer has it open, from its previous use or the next: each group
  // that uses the board needs an identity of its own.
  bool open(std::uint64_t group) override;
  void close(std::uint64_t group) override;
  // The group must be open for these. read() takes this rank's own cell too.
  void publish(std::uint64_t group, std::uint64_t sequence, std::uint64_t digest, ConstBytes payload) override;
  void ring(std::uint64_t group) override;
  std::optional<ExchangeCell> read(std::uint64_t group, WorldRank peer, std::uint64_t sequence) override;

  // For a rank about to sleep: whether a cell that a read() missed has been published since. Reports each cell once.
  bool awaited_cell_arrived();
  // A lost peer no longer keeps any cell from being reused.
  void forget(WorldRank rank);
  // The rank of a peer whose cell was malformed, once.
  std::optional<WorldRank> take_fault();

 private:
  // This rank's view of a peer's cell for a group that this rank has open.
  struct View {
    std::uint32_t cell = kNoCell;
    std::uint64_t awaited = 0;        // the sequence that the last read() did not find
    std::uint64_t searched = kNever;  // the peer's `openings` when it had no such cell
  };

  static constexpr std::uint32_t kNoCell = kBoardCells;
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  std::uint32_t own_cell(std::uint64_t group) const;
  bool may_reuse(std::uint32_t cell) const;
  std::uint32_t pick_cell(std::uint64_t group) const;
  bool find(const Area& area, std::uint64_t group, View& view) const;
  std::optional<ExchangeCell> find_published(const Area& area, std::uint64_t group, View& view, std::uint64_t sequence);
  View& view(std::uint32_t cell, std::size_t peer) { return views_[cell * peers_.size() + peer]; }

  const WorldRank rank_;
  Area& own_;
  std::vector<Peer> peers_;
  std::vector<int> index_of_rank_;  // -1: none (this rank)
  std::uint64_t open_ = 0;          // copy of own_.open
  std::uint64_t known_ = 0;         // copy of own_.known
  std::array<std::uint64_t, kBoardCells> groups_{};
  mutable std::uint32_t last_cell_ = 0;  // where own_cell() looks first
  std::vector<View> views_;              // [own cell][index in peers_]
  std::optional<WorldRank> fault_;
};

}  // namespace qccl::shm
