#include "transport/shm/shm_heap.h"

#include <string>

#include "os/memory.h"
#include "transport/shm/layout.h"

namespace qccl::shm {
namespace {

// Unmaps the block, and frees its pages if they belong to this rank.
struct BlockOwner {
  std::shared_ptr<os::SharedHeapFile> heap;
  std::uint64_t offset;
  std::size_t pages = 0;  // bytes to give back
  os::Mapping mapping;

  BlockOwner(std::shared_ptr<os::SharedHeapFile> fd, std::uint64_t at) : heap(std::move(fd)), offset(at) {}
  BlockOwner(const BlockOwner&) = delete;
  BlockOwner& operator=(const BlockOwner&) = delete;
  ~BlockOwner() {
    mapping.reset();
    if (pages > 0) os::discard_pages(heap->fd, offset, pages);
  }
  Status map(std::size_t bytes) {
    auto mapped = os::map_shared_range(heap->fd, offset, bytes);
    if (!mapped) return mapped.failure();
    mapping = std::move(*mapped);
    return {};
  }
};

SharedHeap::Memory memory_of(std::shared_ptr<BlockOwner> owner) {
  std::byte* const data = owner->mapping.data();
  return {std::move(owner), data};
}

}  // namespace

Result<SharedHeap::Block> ShmHeap::allocate(std::size_t bytes) {
  const std::shared_ptr<os::SharedHeapFile>& heap = of_rank_[rank_.index()];
  const std::size_t size = bytes > heap->bytes ? heap->bytes : round_up(bytes, kPageBytes);
  const std::uint64_t offset = next_.fetch_add(size);
  if (bytes > heap->bytes || size > heap->bytes - offset) {
    next_ -= size;
    return Failure(ErrorKind::resource_exhausted,
                   "no addresses are left for " + std::to_string(bytes) + " bytes in a heap of " +
                       std::to_string(heap->bytes) + (heap->bytes < kHeapBytes ? ", which ulimit -f keeps small" : ""));
  }
  auto owner = std::make_shared<BlockOwner>(heap, offset);
  QCCL_TRY(os::commit_pages(heap->fd, offset, size));
  owner->pages = size;
  QCCL_TRY(owner->map(size));
  return Block{offset, memory_of(std::move(owner))};
}

Result<SharedHeap::Memory> ShmHeap::map(WorldRank peer, std::uint64_t offset, std::size_t bytes) {
  const auto& heap = of_rank_[peer.index()];
  if (offset % kPageBytes != 0 || bytes == 0 || bytes > heap->bytes || offset > heap->bytes - bytes) {
    return Failure(ErrorKind::corrupt_data,
                   "rank " + std::to_string(peer.value()) + " names a block outside of its heap");
  }
  auto owner = std::make_shared<BlockOwner>(heap, offset);
  QCCL_TRY(owner->map(round_up(bytes, kPageBytes)));
  return memory_of(std::move(owner));
}

}  // namespace qccl::shm
