#include "transport/shm/shm_heap.h"

#include <fmt/format.h>

#include "transport/shm/layout.h"

namespace qccl::shm {
namespace {

// Unmaps a block, and frees its pages if they belong to this rank.
struct MappedBlock {
  std::shared_ptr<os::SharedHeapFile> heap;
  std::uint64_t offset;
  std::size_t own_bytes = 0;
  os::Mapping mapping{};

  MappedBlock(std::shared_ptr<os::SharedHeapFile> from, std::uint64_t at) : heap(std::move(from)), offset(at) {}
  MappedBlock(const MappedBlock&) = delete;
  MappedBlock& operator=(const MappedBlock&) = delete;
  ~MappedBlock() {
    mapping.reset();
    if (own_bytes > 0) os::discard_pages(heap->fd, offset, own_bytes);
  }
};

Result<SharedHeap::Memory> map_block(std::shared_ptr<MappedBlock> block, std::size_t bytes) {
  auto mapped = os::map_shared_range(block->heap->fd, block->offset, bytes);
  if (!mapped) return mapped.failure();
  block->mapping = std::move(*mapped);
  std::byte* const data = block->mapping.data();
  return SharedHeap::Memory(std::move(block), data);
}

}  // namespace

Result<SharedHeap::Block> ShmHeap::allocate(std::size_t bytes) {
  const std::shared_ptr<os::SharedHeapFile>& heap = of_rank_[rank_.index()];
  const std::size_t size = bytes > heap->bytes ? heap->bytes : round_up(bytes, kPageBytes);
  const std::uint64_t offset = next_.fetch_add(size);
  if (bytes > heap->bytes || size > heap->bytes - offset) {
    next_ -= size;
    return Failure(ErrorKind::resource_exhausted,
                   fmt::format("no addresses are left for {} bytes in a heap of {}{}", bytes, heap->bytes,
                               heap->bytes < kHeapBytes ? ", which ulimit -f keeps small" : ""));
  }
  auto block = std::make_shared<MappedBlock>(heap, offset);
  QCCL_TRY(os::commit_pages(heap->fd, offset, size));
  block->own_bytes = size;
  auto memory = map_block(std::move(block), size);
  if (!memory) return memory.failure();
  return Block{offset, std::move(*memory)};
}

Result<SharedHeap::Memory> ShmHeap::map(WorldRank peer, std::uint64_t offset, std::size_t bytes) {
  const auto& heap = of_rank_[peer.index()];
  if (offset % kPageBytes != 0 || bytes == 0 || bytes > heap->bytes || offset > heap->bytes - bytes) {
    return Failure(ErrorKind::corrupt_data, fmt::format("rank {} names a block outside of its heap", peer));
  }
  return map_block(std::make_shared<MappedBlock>(heap, offset), round_up(bytes, kPageBytes));
}

}  // namespace qccl::shm
