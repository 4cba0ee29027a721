// One Transport out of several endpoints: shared memory to the peers on this host, TCP to the rest. Owns the poller
// that they share.
#pragma once

#include <memory>
#include <vector>

#include "os/net/poller.h"
#include "transport/endpoint.h"

namespace qccl {

class Router final : public Transport {
 public:
  // `endpoint_of_rank[r]` is the index in `endpoints` of the endpoint that reaches world rank r, -1 for this rank. The
  // endpoints were made with `poller`.
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
  bool is_local(WorldRank peer) const override { return endpoint(peer).is_local(peer); }
  // The endpoint's board if one endpoint reaches every peer.
  ExchangeCells* board() override { return reaches_all_ != nullptr ? reaches_all_->board() : nullptr; }
  // The heap of the endpoint that has one.
  SharedHeap* heap() override;
  const char* kind(WorldRank peer) const override { return endpoint(peer).kind(peer); }
  bool flushed() const override;
  void close() override;

 private:
  Endpoint& endpoint(WorldRank peer) const { return *endpoint_of_rank_[peer.index()]; }
  void dispatch(const os::Poller::Ready& event);

  std::unique_ptr<os::Poller> poller_;  // first: the endpoints use it until they are gone
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<Endpoint*> endpoint_of_rank_;
  Endpoint* reaches_all_ = nullptr;  // the endpoint that reaches every peer, if there is one
  Endpoint* reserved_ = nullptr;     // holds the reservation that commit() ends
  std::size_t next_ = 0;             // the endpoint that receive() asks first
};

}  // namespace qccl
