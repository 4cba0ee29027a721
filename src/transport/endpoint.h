// The contract of a transport that sleeps on descriptors, and the Router, which makes one transport of several (shared
// memory to some peers, TCP to others): it sleeps in one call.
//
// An endpoint registers its descriptors with a poller that it shares, under token(index). The poller's owner sleeps
// like this; Endpoint::sleep() does the same for an endpoint used alone:
//
//   if every endpoint's arm() returns true:   for (event : poller.wait(timeout)) its endpoint's ready(event);
//   disarm() for every endpoint that was armed
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "os/net/poller.h"
#include "transport/transport.h"

namespace qccl {

class Endpoint : public Transport {
 public:
  // `poller` must outlive the endpoint. Endpoints that share one differ in `token_space`.
  Endpoint(os::Poller& poller, std::uint8_t token_space) : poller_(poller), token_space_(token_space) {}

  // Announces that this thread is about to sleep: from now on peers ring, which they do not while it spins. False if
  // something is ready already, so that the caller must not sleep. Call disarm() next in either case.
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  // One of this endpoint's descriptors is ready: handles the event, now or in progress().
  virtual void ready(const os::Poller::Ready& event) = 0;

  void sleep(TimePoint deadline, const Clock& clock) override {
    if (arm()) {
      for (const auto& event : poller_.wait(deadline - clock.now())) {
        if (token_space_of(event.token) == token_space_) ready(event);
      }
    }
    disarm();
  }
  void wake() override { poller_.wake(); }

  std::uint8_t token_space() const { return token_space_; }
  static std::uint8_t token_space_of(std::uint64_t token) { return static_cast<std::uint8_t>(token >> kIndexBits); }

 protected:
  // The poller's token for this endpoint's descriptor `index`, and back.
  std::uint64_t token(std::uint64_t index) const { return std::uint64_t{token_space_} << kIndexBits | index; }
  static std::uint64_t index_of(std::uint64_t token) { return token & ((std::uint64_t{1} << kIndexBits) - 1); }
  os::Poller& poller() { return poller_; }

 private:
  static constexpr int kIndexBits = 56;
  os::Poller& poller_;
  std::uint8_t token_space_;
};

// Token spaces of the endpoints; 255 is the poller's own.
inline constexpr std::uint8_t kShmTokenSpace = 1;
inline constexpr std::uint8_t kTcpTokenSpace = 2;

// One Transport out of several endpoints: shared memory to the peers on this host, TCP to the rest. Owns their poller.
class Router final : public Transport {
 public:
  // `endpoint_of_rank[r]`: which of `endpoints` reaches world rank r, by index; -1: this rank. All use `poller`.
  Router(std::unique_ptr<os::Poller> poller, std::vector<std::unique_ptr<Endpoint>> endpoints,
         std::vector<int> endpoint_of_rank);

  Bytes reserve(WorldRank peer, std::size_t max_bytes, TrafficClass traffic) override;
  void commit(std::size_t actual_bytes) override { reserved_->commit(actual_bytes); }
  bool commit_gathered(std::size_t head_bytes, ConstBytes payload) override {
    return reserved_->commit_gathered(head_bytes, payload);
  }
  std::optional<ReceivedFrame> receive() override;
  void release(const ReceivedFrame& frame) override { endpoint(frame.peer).release(frame); }
  void set_placement(PayloadPlacement* placement) override;
  void withdraw() override;
  bool progress() override;
  std::optional<PeerLoss> next_loss() override;
  void disconnect(WorldRank peer) override { endpoint(peer).disconnect(peer); }
  void sleep(TimePoint deadline, const Clock& clock) override;
  void wake() override { poller_->wake(); }
  Nanoseconds round_trip(WorldRank peer) const override { return endpoint(peer).round_trip(peer); }
  Acknowledged acknowledged(WorldRank peer) const override { return endpoint(peer).acknowledged(peer); }
  bool is_local(WorldRank peer) const override { return endpoint(peer).is_local(peer); }
  // The endpoint's board if one endpoint reaches every peer.
  ExchangeCells* board() override { return reaches_all_ != nullptr ? reaches_all_->board() : nullptr; }
  // That of the endpoint that has one.
  HostMemory host_memory() override;
  const char* kind(WorldRank peer) const override { return endpoint(peer).kind(peer); }
  int connections(WorldRank peer) const override { return endpoint(peer).connections(peer); }
  bool flushed() const override;
  void set_close_patience(Nanoseconds patience) override;
  void close() override;

 private:
  Endpoint& endpoint(WorldRank peer) const { return *endpoint_of_rank_[peer.index()]; }

  std::unique_ptr<os::Poller> poller_;  // first: the endpoints use it until they are gone
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<Endpoint*> endpoint_of_rank_;
  Endpoint* reaches_all_ = nullptr;  // the endpoint that reaches every peer, if there is one
  Endpoint* reserved_ = nullptr;     // holds the reservation that commit() ends
  std::size_t next_ = 0;             // the endpoint that receive() asks first
};

}  // namespace qccl
