#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "os/net/poller.h"
#include "transport/endpoint.h"
#include "transport/transport.h"

namespace qccl {

// One Transport out of several endpoints: shared memory to the peers on this host, TCP to the rest. Owns their poller.
class Router final : public Transport {
 public:
  // `endpoint_of_rank[r]`: which of `endpoints` reaches world rank r, by index; -1: this rank. All use `poller`.
  Router(std::unique_ptr<os::Poller> poller, std::vector<std::unique_ptr<Endpoint>> endpoints,
         std::vector<int> endpoint_of_rank);

  Reservation reserve(WorldRank peer, std::size_t max_bytes, TrafficClass traffic) override {
    return endpoint(peer).reserve(peer, max_bytes, traffic);
  }
  void commit(Reservation&& room, std::size_t bytes, ConstBytes payload) override {
    endpoint(room.peer()).commit(std::move(room), bytes, payload);
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
  TimePoint next_send_time() const override;
  Nanoseconds round_trip(WorldRank peer) const override { return endpoint(peer).round_trip(peer); }
  Acknowledged acknowledged(WorldRank peer) const override { return endpoint(peer).acknowledged(peer); }
  void adapt(TimePoint now) override {
    for (const auto& each : endpoints_) each->adapt(now);
  }
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
  std::size_t next_ = 0;             // the endpoint that receive() asks first
};

}  // namespace qccl
