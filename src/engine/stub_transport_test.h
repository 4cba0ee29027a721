// A transport that moves nothing, for tests to fill in.
#pragma once

#include <optional>

#include "transport/transport.h"

namespace qccl::engine::testing {

class StubTransport : public Transport {
 public:
  // `is_near`: all peers are on this host.
  explicit StubTransport(bool is_near) : is_near_(is_near) {}
  Bytes reserve(WorldRank, std::size_t, TrafficClass) override { return {}; }
  void commit(std::size_t) override {}
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
