// The heap of a rank: memory that its peers on the host can map block by block. Blocks follow each other in a memfd
// that the ranks exchange at start-up. An offset is never used twice, so that a peer that still maps a freed block does
// not see a later one.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "os/memory.h"
#include "transport/transport.h"

namespace qccl::shm {

class ShmHeap final : public SharedHeap {
 public:
  // `of_rank[r]`: the heap of world rank r; this rank's own is `of_rank[rank]`.
  ShmHeap(WorldRank rank, std::vector<std::shared_ptr<os::SharedHeapFile>> of_rank)
      : rank_(rank), of_rank_(std::move(of_rank)) {}

  Result<Block> allocate(std::size_t bytes) override;
  bool reaches(WorldRank peer) const override { return of_rank_[peer.index()] != nullptr; }
  Result<Memory> map(WorldRank peer, std::uint64_t offset, std::size_t bytes) override;

 private:
  const WorldRank rank_;
  const std::vector<std::shared_ptr<os::SharedHeapFile>> of_rank_;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace qccl::shm
