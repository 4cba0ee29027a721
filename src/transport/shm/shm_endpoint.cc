#include "transport/shm/shm_endpoint.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "base/log.h"
#include "transport/shm/shm_cells.h"
#include "transport/shm/shm_peers.h"

namespace qccl {
namespace shm {
namespace {

// Unmaps a block, and frees its pages if they belong to this rank.
struct MappedBlock {
  std::shared_ptr<os::SharedHeapFile> heap;
  std::uint64_t offset;
  std::size_t own_bytes = 0;
  os::Mapping mapping{};

  MappedBlock(std::shared_ptr<os::SharedHeapFile> from, std::uint64_t at) : heap(std::move(from)), offset(at) {}
  ~MappedBlock() {
    mapping.reset();
    if (own_bytes > 0) os::discard_pages(heap->fd, offset, own_bytes);
  }
};

Result<SharedHeap::Memory> map_block(std::shared_ptr<MappedBlock> block, std::size_t bytes) {
  QCCL_ASSIGN(block->mapping, os::map_shared_range(block->heap->fd, block->offset, bytes));
  std::byte* const data = block->mapping.data();
  return SharedHeap::Memory(std::move(block), data);
}

// The heap of a rank: memory that its peers on the host can map block by block. Blocks follow each other in a memfd
// that the ranks exchange at start-up. No offset is used twice: a peer that still maps a freed block sees no later one.
class ShmHeap final : public SharedHeap {
 public:
  // `of_rank[r]`: the heap of world rank r; this rank's own is `of_rank[rank]`.
  ShmHeap(WorldRank rank, std::vector<std::shared_ptr<os::SharedHeapFile>> of_rank)
      : rank_(rank), of_rank_(std::move(of_rank)) {}

  Result<Block> allocate(std::size_t bytes) override {
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
    QCCL_ASSIGN(auto memory, map_block(std::move(block), size));
    return Block{offset, std::move(memory)};
  }
  bool reaches(WorldRank peer) const override { return of_rank_[peer.index()] != nullptr; }
  Result<Memory> map(WorldRank peer, std::uint64_t offset, std::size_t bytes) override {
    const auto& heap = of_rank_[peer.index()];
    if (offset % kPageBytes != 0 || bytes == 0 || bytes > heap->bytes || offset > heap->bytes - bytes) {
      return Failure(ErrorKind::corrupt_data, fmt::format("rank {} names a block outside of its heap", peer));
    }
    return map_block(std::make_shared<MappedBlock>(heap, offset), round_up(bytes, kPageBytes));
  }

 private:
  const WorldRank rank_;
  const std::vector<std::shared_ptr<os::SharedHeapFile>> of_rank_;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace
}  // namespace shm

namespace {

using shm::ShmPeer;

constexpr std::uint64_t kDoorbellToken = 0;
constexpr std::uint64_t kFirstPeerToken = 1;

// A lost peer has no rooms, and closing loses all.
class ShmRooms final : public FrameRooms {
 public:
  explicit ShmRooms(const shm::ShmPeers& peers) : peers_(peers) {}

  Reservation hold(WorldRank rank, std::size_t max_bytes) override {
    ShmPeer* const peer = peers_.find(rank);
    return peer != nullptr ? peer->hold(max_bytes) : Reservation();
  }
  std::vector<Memory> memory() const override {
    std::vector<Memory> all;
    for (const auto& peer : peers_.all()) {
      const ShmLink& link = peer->link();
      all.push_back({link.pair, {link.pair->data(), shm::pair_bytes(link.large_slots)}});
    }
    return all;
  }

 private:
  const shm::ShmPeers& peers_;
};

class ShmEndpoint final : public Endpoint {
 public:
  ShmEndpoint(os::Poller& poller, const ShmOptions& options, ShmExports exports, std::vector<ShmLink> links)
      : Endpoint(poller, kShmTokenSpace),
        exports_(std::move(exports)),
        area_(*reinterpret_cast<shm::Area*>(exports_.area->data())),
        bell_(area_.sleep_word),
        peers_(poller, token(kFirstPeerToken), options.world) {
    const std::size_t distance = options.shares_cores ? shm::kReuseDistanceOnSharedCores : shm::kReuseDistance;
    std::vector<shm::ShmCells::Peer> cells;
    std::vector<std::shared_ptr<os::SharedHeapFile>> heaps(static_cast<std::size_t>(options.world));
    heaps[static_cast<std::size_t>(exports_.rank)] = exports_.heap;
    for (ShmLink& link : links) {
      auto peer = std::make_unique<ShmPeer>(exports_.rank, std::move(link), distance, copies_);
      cells.push_back({.rank = peer->rank(), .area = &peer->area(), .bell = peer->bell()});
      heaps[peer->rank().index()] = peer->link().heap;
      peers_.add(std::move(peer));
    }
    if (static_cast<int>(cells.size()) == options.world - 1) {
      board_.emplace(WorldRank(exports_.rank), options.world, area_, std::move(cells));
    }
    if (!links.empty()) heap_.emplace(WorldRank(exports_.rank), std::move(heaps));
  }
  ~ShmEndpoint() override { ShmEndpoint::close(); }
  Status watch() {
    QCCL_TRY(poller().watch(exports_.doorbell.get(), token(kDoorbellToken)));
    return peers_.watch();
  }

  Reservation reserve(WorldRank rank, std::size_t max_bytes, TrafficClass traffic) override {
    ShmPeer* const peer = peers_.find(rank);
    QCCL_CHECK(peer != nullptr);
    if (closed_) return {};
    Reservation room = peer->reserve(max_bytes, traffic);
    if (!room) peers_.check_queues(*peer);
    return room;
  }
  void commit(Reservation&& room, std::size_t bytes, ConstBytes payload) override {
    const std::size_t all = room.append(bytes, payload);
    peers_.find(room.peer())->commit(std::move(room), all);
  }
  std::optional<ReceivedFrame> receive() override { return closed_ ? std::nullopt : peers_.receive(); }
  void release(const ReceivedFrame& frame) override { peers_.find(frame.peer)->release(frame); }
  bool progress() override {
    if (closed_) return false;
    const bool arrived = peers_.has_arrived();
    peers_.check_sockets_in_turn();
    if (const auto rank = board_ ? board_->take_fault() : std::nullopt) {
      peers_.lose(*peers_.find(*rank), {"corrupt data: its board cell is malformed"});
    }
    return arrived;
  }

  std::optional<PeerLoss> next_loss() override {
    auto loss = peers_.next_loss();
    if (loss && board_) board_->forget(loss->peer);
    return loss;
  }
  void disconnect(WorldRank rank) override {
    peers_.disconnect(*peers_.find(rank));
    if (board_) board_->forget(rank);
  }

  // The check is S3 of bell.h.
  bool arm() override {
    bell_.arm();
    return closed_ || !(peers_.has_news() || (board_ && board_->awaited_cell_arrived()));
  }
  void disarm() override { bell_.disarm(); }
  void ready(const os::Poller::Ready& event) override {
    const std::uint64_t index = index_of(event.token);
    if (index == kDoorbellToken) {
      os::drain_eventfd(exports_.doorbell);
    } else {
      peers_.check_socket(index - kFirstPeerToken);
    }
  }

  bool is_local(WorldRank peer) const override { return peers_.find(peer) != nullptr; }
  ExchangeCells* board() override { return board_ ? &*board_ : nullptr; }
  HostMemory host_memory() override { return heap_ ? HostMemory{&*heap_, &rooms_} : HostMemory{}; }
  const char* kind(WorldRank) const override { return "shm"; }
  // Committed frames lie in memory that outlives this process.
  bool flushed() const override { return true; }
  void close() override {
    // A forked child shares this memory with its parent but must not close the parent's connections.
    if (closed_ || mark_.inherited()) return;
    closed_ = true;
    peers_.close();
    poller().forget(exports_.doorbell.get());
  }

 private:
  ShmExports exports_;
  shm::Area& area_;
  shm::OwnBell bell_;
  shm::CopyPool copies_;
  shm::ShmPeers peers_;
  ShmRooms rooms_{peers_};
  std::optional<shm::ShmCells> board_;  // if the peers are all other ranks
  std::optional<shm::ShmHeap> heap_;    // if there are peers
  const os::ForkMark mark_;
  bool closed_ = false;
};

}  // namespace

Result<std::unique_ptr<Endpoint>> make_shm_endpoint(os::Poller& poller, const ShmOptions& options, ShmExports exports,
                                                    std::vector<ShmLink> links) {
  auto endpoint = std::make_unique<ShmEndpoint>(poller, options, std::move(exports), std::move(links));
  QCCL_TRY(endpoint->watch());
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace qccl
