// A transport that moves nothing and has no room, for tests to fill in.
#pragma once

#include <optional>

#include "transport/transport.h"

namespace qccl::engine::testing {

class StubTransport : public BasicTransport {
 public:
  // `is_near`: all peers are on this host.
  explicit StubTransport(bool is_near) : is_near_(is_near) {}
  Reservation reserve(WorldRank, std::size_t, TrafficClass) override { return {}; }
  void commit(Reservation&&, std::size_t, ConstBytes) override {}
  std::optional<ReceivedFrame> receive() override { return std::nullopt; }
  void release(const ReceivedFrame&) override {}
  bool progress() override { return false; }
  std::optional<PeerLoss> next_loss() override { return std::nullopt; }
  void disconnect(WorldRank) override {}
  void sleep(TimePoint, const Clock&) override {}
  void wake() override {}
  bool is_local(WorldRank) const override { return is_near_; }
  const char* kind(WorldRank) const override { return "stub"; }
  bool flushed() const override { return true; }
  void close() override {}

 private:
  const bool is_near_;
};

}  // namespace qccl::engine::testing
