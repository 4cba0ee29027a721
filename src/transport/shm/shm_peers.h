// The peers of an endpoint in shared memory: two frame queues, a bell, and a socket that ends when the peer does.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "os/net/poller.h"
#include "os/net/socket.h"
#include "transport/shm/bell.h"
#include "transport/shm/frame_queue.h"
#include "transport/shm/shm_endpoint.h"

namespace qccl::shm {

class ShmPeer {
 public:
  ShmPeer(int own, ShmLink link, std::size_t reuse_distance, CopyPool& pool)
      : link_(std::move(link)),
        sender_(queue_from(own, link_.peer), rank(), reuse_distance),
        receiver_(queue_from(link_.peer, own), pool),
        bell_(area().sleep_word, link_.doorbell) {}

  WorldRank rank() const { return WorldRank(link_.peer); }
  Area& area() const { return *reinterpret_cast<Area*>(link_.area->data()); }
  const PeerBell& bell() const { return bell_; }
  const ShmLink& link() const { return link_; }

  // See FrameQueueSender. None once the peer is lost, and its rooms go back.
  Reservation reserve(std::size_t max_bytes, TrafficClass traffic) {
    return is_connected() ? sender_.reserve(max_bytes, traffic) : Reservation();
  }
  Reservation hold(std::size_t max_bytes) { return is_connected() ? sender_.hold(max_bytes) : Reservation(); }
  void commit(Reservation&& room, std::size_t bytes) {
    if (!is_connected()) {
      room = {};
      return;
    }
    sender_.commit(std::move(room), bytes);
    full_fence();
    if (bell_.asleep()) bell_.ring();
  }
  bool slots_came_back() { return state_ != State::gone && sender_.slots_came_back(); }

  // Frames of a lost peer still arrive until its loss is reported.
  bool has_arrived() const { return state_ != State::gone && receiver_.arrived(); }
  std::optional<ReceivedFrame> receive() {
    const auto arrival = receiver_.take();
    ring_for_returns();
    if (!arrival) return std::nullopt;
    return ReceivedFrame{rank(), arrival->bytes, arrival->frame};
  }
  void release(const ReceivedFrame& frame) {
    receiver_.release(static_cast<HeldFrame*>(frame.slot));
    ring_for_returns();
  }

  struct Fault {
    std::string cause;  // empty: none
    Transport::End end = Transport::End::broken;
  };
  // Whether the peer broke the rules of the queues.
  Fault queue_fault() const {
    const std::string& fault = receiver_.fault().empty() ? sender_.fault() : receiver_.fault();
    return {fault.empty() ? "" : "corrupt data: " + fault};
  }
  // Whether the socket shows that the peer is gone, or has given this rank up.
  Fault socket_fault() const {
    if (!is_connected()) return {};
    std::array<std::byte, 64> word;
    const auto got = os::read_some(link_.socket.get(), word);
    if (got.lost()) return {os::describe(got), Transport::End::by_peer};
    return {got.ok() ? "gave this rank up: it found corrupt data in the memory that they share" : ""};
  }

  bool is_connected() const { return state_ == State::connected; }
  bool is_gone() const { return state_ == State::gone; }
  // A peer that lives learns that this rank does, too.
  void lose(Fault fault) {
    state_ = State::lost;
    fault_ = std::move(fault);
    const std::array<std::byte, 1> word{};
    if (fault_.end == Transport::End::broken) static_cast<void>(os::write_some(link_.socket.get(), word));
    link_.socket.reset();
  }
  // Only after the frames that the peer sent while it lived.
  bool may_report_loss() const { return state_ == State::lost && (!receiver_.arrived() || !receiver_.fault().empty()); }
  Transport::PeerLoss report_loss() {
    state_ = State::gone;
    return {rank(), fault_.cause, fault_.end};
  }

 private:
  // lost: nothing more is sent, but frames that had arrived are still handed out. gone: not even those.
  enum class State { connected, lost, gone };

  // The queue of the pair in which `sender` sends.
  FrameQueue queue_from(int sender, int receiver) const {
    const std::size_t offset = sender < receiver ? 0 : queue_bytes(link_.large_slots);
    return {link_.pair->data() + offset, link_.large_slots};
  }
  // Rings the peer if slots that it waits for were returned.
  void ring_for_returns() {
    if (!receiver_.has_returned_slots()) return;
    full_fence();
    if (bell_.asleep() && receiver_.sender_starves()) bell_.ring();
  }

  ShmLink link_;
  FrameQueueSender sender_;
  FrameQueueReceiver receiver_;
  PeerBell bell_;
  State state_ = State::connected;
  Fault fault_;
};

class ShmPeers {
 public:
  // The sockets' tokens in `poller` begin at `first_token`.
  ShmPeers(os::Poller& poller, std::uint64_t first_token, int world)
      : poller_(poller), first_token_(first_token), by_rank_(static_cast<std::size_t>(world)) {}

  void add(std::unique_ptr<ShmPeer> peer) {
    by_rank_[peer->rank().index()] = peer.get();
    peers_.push_back(std::move(peer));
  }
  Status watch() {
    for (std::size_t i = 0; i < peers_.size(); ++i)
      QCCL_TRY(poller_.watch(peers_[i]->link().socket.get(), first_token_ + i));
    return {};
  }
  const std::vector<std::unique_ptr<ShmPeer>>& all() const { return peers_; }
  // Null if this is no peer.
  ShmPeer* find(WorldRank rank) const { return by_rank_[rank.index()]; }

  bool has_arrived() const {
    bool arrived = false;
    for (const auto& peer : peers_) arrived |= peer->has_arrived();
    return arrived;
  }
  // Asks the peers in turn.
  std::optional<ReceivedFrame> receive() {
    for (std::size_t tried = 0; tried < peers_.size(); ++tried) {
      ShmPeer& peer = *peers_[next_];
      if (++next_ == peers_.size()) next_ = 0;
      if (!peer.has_arrived()) continue;
      if (auto frame = peer.receive()) return frame;
      check_queues(peer);
    }
    return std::nullopt;
  }
  // Whether receive() or next_loss() may have something, or a reserve() that failed may succeed now.
  bool has_news() {
    bool news = unreported_ > 0;
    for (const auto& peer : peers_) news |= peer->has_arrived() || peer->slots_came_back();
    return news;
  }

  void check_queues(ShmPeer& peer) {
    if (auto fault = peer.queue_fault(); !fault.cause.empty()) lose(peer, std::move(fault));
  }
  void check_socket(std::size_t index) {
    if (index >= peers_.size()) return;
    if (auto fault = peers_[index]->socket_fault(); !fault.cause.empty()) lose(*peers_[index], std::move(fault));
  }
  // Checks one socket in some thousand calls: a rank that never sleeps does not notice end of file otherwise.
  void check_sockets_in_turn() {
    if (++calls_ % kCallsPerSocketCheck != 0 || peers_.empty()) return;
    checked_ = (checked_ + 1) % peers_.size();
    check_socket(checked_);
  }

  void lose(ShmPeer& peer, ShmPeer::Fault fault) {
    if (!peer.is_connected()) return;
    poller_.forget(peer.link().socket.get());
    peer.lose(std::move(fault));
    ++unreported_;
  }
  std::optional<Transport::PeerLoss> next_loss() {
    if (unreported_ == 0) return std::nullopt;
    const auto lost = std::ranges::find_if(peers_, [](const auto& peer) { return peer->may_report_loss(); });
    if (lost == peers_.end()) return std::nullopt;
    --unreported_;
    return (*lost)->report_loss();
  }
  // The peer's loss is not reported.
  void disconnect(ShmPeer& peer) {
    lose(peer, {"disconnected", Transport::End::by_peer});
    if (peer.is_gone()) return;
    peer.report_loss();
    --unreported_;
  }
  void close() {
    for (const auto& peer : peers_) {
      if (peer->is_connected()) disconnect(*peer);
    }
  }

 private:
  // A call takes some 10 ns, the check's system call 200 ns.
  static constexpr std::uint32_t kCallsPerSocketCheck = 4096;

  os::Poller& poller_;
  const std::uint64_t first_token_;
  std::vector<std::unique_ptr<ShmPeer>> peers_;
  std::vector<ShmPeer*> by_rank_;
  std::size_t next_ = 0;        // the peer that receive() asks first
  std::size_t unreported_ = 0;  // losses
  std::uint32_t calls_ = 0;
  std::size_t checked_ = 0;
};

}  // namespace qccl::shm
