#include "transport/shm/shm_endpoint.h"

#include <array>
#include <string>
#include <utility>

#include "base/check.h"
#include "os/fd.h"
#include "os/net/stream.h"
#include "transport/shm/bell.h"
#include "transport/shm/frame_queue_receiver.h"
#include "transport/shm/frame_queue_sender.h"
#include "transport/shm/layout.h"
#include "transport/shm/shm_cells.h"
#include "transport/shm/shm_heap.h"

namespace qccl {
namespace {

using shm::Area;
using shm::FrameQueue;

// A spinning engine does not notice end of file, so progress() checks one socket every this many calls: a call takes
// some 10 ns, the check's system call 200 ns.
constexpr std::uint32_t kCallsPerSocketCheck = 4096;

constexpr std::uint64_t kDoorbellToken = 0;  // peers follow from 1

Area& area_in(const os::Mapping& mapping) { return *reinterpret_cast<Area*>(mapping.data()); }

// The queue of the pair in which `sender` sends.
FrameQueue queue_from(int sender, int receiver, const ShmLink& link) {
  const std::size_t offset = sender < receiver ? 0 : shm::queue_bytes(link.large_slots);
  return {link.pair->data() + offset, link.large_slots};
}

// lost: nothing is sent any more, but frames that had arrived are still handed out. gone: not even those.
enum class PeerState { connected, lost, gone };

struct Peer {
  Peer(int own_rank, ShmLink with, bool shares_cores, shm::CopyPool& pool)
      : link(std::move(with)),
        sender(queue_from(own_rank, link.peer, link),
               shares_cores ? shm::kReuseDistanceOnSharedCores : shm::kReuseDistance),
        receiver(queue_from(link.peer, own_rank, link), pool),
        bell(area_in(*link.area).sleep_word, link.doorbell) {}

  ShmLink link;
  shm::FrameQueueSender sender;
  shm::FrameQueueReceiver receiver;
  shm::PeerBell bell;
  PeerState state = PeerState::connected;
  std::string cause;
};

class ShmEndpoint final : public Endpoint {
 public:
  ShmEndpoint(os::Poller& poller, const ShmOptions& options, ShmExports exports, std::vector<ShmLink> links);
  ~ShmEndpoint() override { close(); }
  Status watch();

  Bytes reserve(WorldRank peer, std::size_t max_bytes, TrafficClass traffic) override;
  void commit(std::size_t actual_bytes) override;
  std::optional<ReceivedFrame> receive() override;
  void release(const ReceivedFrame& frame) override;
  bool progress() override;
  std::optional<PeerLoss> next_loss() override;
  void disconnect(WorldRank rank) override;
  bool arm() override;
  void disarm() override { bell_.disarm(); }
  void ready(const os::Poller::Ready& event) override;
  bool is_local(WorldRank peer) const override { return find(peer) != nullptr; }
  ExchangeCells* board() override { return board_ ? &*board_ : nullptr; }
  SharedHeap* heap() override { return heap_ ? &*heap_ : nullptr; }
  const char* kind(WorldRank) const override { return "shm"; }
  // Committed frames lie in memory that outlives this process.
  bool flushed() const override { return true; }
  void close() override;

 private:
  std::vector<shm::ShmCells::Peer> cell_peers() const;
  std::vector<std::shared_ptr<os::SharedHeapFile>> heaps() const;
  Peer* find(WorldRank rank) const { return peer_of_rank_[rank.index()]; }
  bool something_is_there();
  void ring_for_returns(Peer& peer);
  void check_sockets_now_and_then();
  void check_socket(Peer& peer);
  void check_fault(Peer& peer);
  void lose(Peer& peer, std::string cause);
  bool may_report(const Peer& peer) const;

  ShmExports exports_;
  shm::OwnBell bell_;
  shm::CopyPool copies_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> peer_of_rank_;
  std::optional<shm::ShmCells> board_;  // if the peers are all other ranks
  std::optional<shm::ShmHeap> heap_;    // if there are peers
  const os::ForkMark mark_;
  bool closed_ = false;
  Peer* reserved_ = nullptr;  // holds the reservation that commit() ends
  std::size_t next_ = 0;      // the peer that receive() asks first
  std::size_t unreported_ = 0;
  std::uint32_t calls_ = 0;
  std::size_t checked_ = 0;
};

ShmEndpoint::ShmEndpoint(os::Poller& poller, const ShmOptions& options, ShmExports exports, std::vector<ShmLink> links)
    : Endpoint(poller, kShmTokenSpace),
      exports_(std::move(exports)),
      bell_(area_in(*exports_.area).sleep_word),
      peer_of_rank_(static_cast<std::size_t>(options.world), nullptr) {
  for (ShmLink& link : links) {
    peers_.push_back(std::make_unique<Peer>(exports_.rank, std::move(link), options.shares_cores, copies_));
    peer_of_rank_[static_cast<std::size_t>(peers_.back()->link.peer)] = peers_.back().get();
  }
  if (static_cast<int>(peers_.size()) == options.world - 1) {
    board_.emplace(WorldRank(exports_.rank), options.world, area_in(*exports_.area), cell_peers());
  }
  if (!peers_.empty()) heap_.emplace(WorldRank(exports_.rank), heaps());
}

std::vector<shm::ShmCells::Peer> ShmEndpoint::cell_peers() const {
  std::vector<shm::ShmCells::Peer> found;
  for (const auto& peer : peers_) {
    found.push_back({.rank = WorldRank(peer->link.peer), .area = &area_in(*peer->link.area), .bell = peer->bell});
  }
  return found;
}

std::vector<std::shared_ptr<os::SharedHeapFile>> ShmEndpoint::heaps() const {
  std::vector<std::shared_ptr<os::SharedHeapFile>> of_rank(peer_of_rank_.size());
  of_rank[static_cast<std::size_t>(exports_.rank)] = exports_.heap;
  for (const auto& peer : peers_) of_rank[static_cast<std::size_t>(peer->link.peer)] = peer->link.heap;
  return of_rank;
}

Status ShmEndpoint::watch() {
  QCCL_TRY(poller().watch(exports_.doorbell.get(), token(kDoorbellToken)));
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    QCCL_TRY(poller().watch(peers_[i]->link.socket.get(), token(1 + i)));
  }
  return {};
}

// ---- frames

Bytes ShmEndpoint::reserve(WorldRank rank, std::size_t max_bytes, TrafficClass traffic) {
  Peer* peer = find(rank);
  QCCL_CHECK(peer != nullptr && reserved_ == nullptr);
  if (peer->state != PeerState::connected || closed_) return {};
  const Bytes room = peer->sender.reserve(max_bytes, traffic);
  if (!room.empty()) {
    reserved_ = peer;
  } else {
    check_fault(*peer);
  }
  return room;
}

void ShmEndpoint::commit(std::size_t actual_bytes) {
  QCCL_CHECK(reserved_ != nullptr);
  Peer& peer = *std::exchange(reserved_, nullptr);
  peer.sender.commit(actual_bytes);
  if (actual_bytes == 0) return;
  shm::full_fence();
  if (peer.bell.asleep()) peer.bell.ring();
}

std::optional<ReceivedFrame> ShmEndpoint::receive() {
  if (closed_) return std::nullopt;
  for (std::size_t tried = 0; tried < peers_.size(); ++tried) {
    Peer& peer = *peers_[next_];
    if (++next_ == peers_.size()) next_ = 0;
    if (peer.state == PeerState::gone || !peer.receiver.arrived()) continue;
    const auto arrival = peer.receiver.take();
    ring_for_returns(peer);
    if (arrival) return ReceivedFrame{WorldRank(peer.link.peer), arrival->bytes, arrival->frame};
    check_fault(peer);
  }
  return std::nullopt;
}

void ShmEndpoint::release(const ReceivedFrame& frame) {
  Peer& peer = *find(frame.peer);
  peer.receiver.release(static_cast<shm::HeldFrame*>(frame.slot));
  ring_for_returns(peer);
}

// Rings the peer if take() or release() returned slots that it waits for.
void ShmEndpoint::ring_for_returns(Peer& peer) {
  if (!peer.receiver.has_returned_slots()) return;
  shm::full_fence();
  if (peer.bell.asleep() && peer.receiver.sender_starves()) peer.bell.ring();
}

bool ShmEndpoint::progress() {
  if (closed_) return false;
  bool arrived = false;
  for (const auto& peer : peers_) {
    if (peer->state != PeerState::gone) arrived |= peer->receiver.arrived();
  }
  check_sockets_now_and_then();
  if (board_) {
    if (const auto rank = board_->take_fault()) lose(*find(*rank), "corrupt data: its board cell is malformed");
  }
  return arrived;
}

// ---- losses

void ShmEndpoint::check_sockets_now_and_then() {
  if (++calls_ % kCallsPerSocketCheck != 0 || peers_.empty()) return;
  checked_ = (checked_ + 1) % peers_.size();
  check_socket(*peers_[checked_]);
}

void ShmEndpoint::check_socket(Peer& peer) {
  if (peer.state != PeerState::connected) return;
  std::array<std::byte, 64> unexpected;
  const auto got = os::read_some(peer.link.socket.get(), unexpected);
  if (got.lost()) return lose(peer, os::describe(got));
  if (got.ok()) lose(peer, "corrupt data: it wrote to the socket that only tells whether it lives");
}

void ShmEndpoint::check_fault(Peer& peer) {
  if (!peer.receiver.fault().empty()) return lose(peer, "corrupt data: " + peer.receiver.fault());
  if (!peer.sender.fault().empty()) lose(peer, "corrupt data: " + peer.sender.fault());
}

void ShmEndpoint::lose(Peer& peer, std::string cause) {
  if (peer.state != PeerState::connected) return;
  peer.state = PeerState::lost;
  peer.cause = std::move(cause);
  ++unreported_;
  if (board_) board_->forget(WorldRank(peer.link.peer));
  poller().forget(peer.link.socket.get());
  peer.link.socket.reset();
}

// Only after the frames that the peer sent while it lived.
bool ShmEndpoint::may_report(const Peer& peer) const {
  if (peer.state != PeerState::lost) return false;
  return !peer.receiver.arrived() || !peer.receiver.fault().empty();
}

std::optional<Transport::PeerLoss> ShmEndpoint::next_loss() {
  if (unreported_ == 0) return std::nullopt;
  for (const auto& peer : peers_) {
    if (!may_report(*peer)) continue;
    peer->state = PeerState::gone;
    --unreported_;
    return PeerLoss{WorldRank(peer->link.peer), peer->cause};
  }
  return std::nullopt;
}

void ShmEndpoint::disconnect(WorldRank rank) {
  Peer& peer = *find(rank);
  lose(peer, "disconnected");
  if (peer.state == PeerState::gone) return;
  peer.state = PeerState::gone;
  --unreported_;
}

// ---- sleeping

bool ShmEndpoint::arm() {
  bell_.arm();
  return closed_ || !something_is_there();
}

// S3 of bell.h.
bool ShmEndpoint::something_is_there() {
  bool there = unreported_ > 0 || (board_ && board_->awaited_cell_arrived());
  for (const auto& peer : peers_) {
    if (peer->state == PeerState::gone) continue;
    there |= peer->receiver.arrived() || peer->sender.slots_came_back();
  }
  return there;
}

void ShmEndpoint::ready(const os::Poller::Ready& event) {
  const std::uint64_t index = index_of(event.token);
  if (index == kDoorbellToken) {
    os::drain_eventfd(exports_.doorbell);
  } else if (index <= peers_.size()) {
    check_socket(*peers_[index - 1]);
  }
}

void ShmEndpoint::close() {
  // A forked child shares this memory with its parent but must not close the parent's connections.
  if (closed_ || mark_.inherited()) return;
  closed_ = true;
  for (const auto& peer : peers_) {
    if (peer->state != PeerState::connected) continue;
    poller().forget(peer->link.socket.get());
    peer->link.socket.reset();
  }
  poller().forget(exports_.doorbell.get());
}

}  // namespace

Result<std::unique_ptr<Endpoint>> make_shm_endpoint(os::Poller& poller, const ShmOptions& options, ShmExports exports,
                                                    std::vector<ShmLink> links) {
  auto endpoint = std::make_unique<ShmEndpoint>(poller, options, std::move(exports), std::move(links));
  QCCL_TRY(endpoint->watch());
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace qccl
