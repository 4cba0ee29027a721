// Limits a process to a link rate (QCCL_LINK_RATE), to leave bandwidth to others or to show the effects of a slow link
// on one machine. Decorates any Transport.
//
// A token bucket counts the bytes of data frames, headers included, to all peers together; control frames are exempt. A
// frame may be sent whenever the balance is not negative, and may make it negative: frames are never split, and in the
// long run the rate is exact. The burst after a pause is at most a millisecond's worth, or 64 KiB if that is more.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "transport/transport.h"

namespace qccl {

// Bytes per second of "1gbit", "2.5gbit", "100mbit", "800kbit" (1000 based, any case, "/s" may follow) or "10MBps",
// "10MB/s", "1.25GB/s", "500KB/s". InvalidArgument lists these forms.
Result<std::uint64_t> parse_link_rate(std::string_view text);

// One thread, as Transport says; `clock` must outlive it. It has no board and no memory of the host: what goes through
// them would bypass the pacing.
class PacedTransport final : public Transport {
 public:
  PacedTransport(std::unique_ptr<Transport> inner, std::uint64_t bytes_per_second, const Clock& clock);

  Reservation reserve(WorldRank peer, std::size_t max_bytes, TrafficClass traffic) override;
  void commit(Reservation&& room, std::size_t bytes, ConstBytes payload) override;
  std::optional<ReceivedFrame> receive() override { return inner_->receive(); }
  void release(const ReceivedFrame& frame) override { inner_->release(frame); }
  void set_placement(PayloadPlacement* placement) override { inner_->set_placement(placement); }
  void withdraw() override { inner_->withdraw(); }
  bool progress() override { return inner_->progress(); }
  std::optional<PeerLoss> next_loss() override { return inner_->next_loss(); }
  void disconnect(WorldRank peer) override { inner_->disconnect(peer); }
  void sleep(TimePoint deadline, const Clock& clock) override;
  void wake() override { inner_->wake(); }
  TimePoint next_send_time() const override;
  Nanoseconds round_trip(WorldRank peer) const override { return inner_->round_trip(peer); }
  Acknowledged acknowledged(WorldRank peer) const override { return inner_->acknowledged(peer); }
  void adapt(TimePoint now) override { inner_->adapt(now); }
  bool is_local(WorldRank peer) const override { return inner_->is_local(peer); }
  ExchangeCells* board() override { return nullptr; }
  HostMemory host_memory() override { return {}; }
  const char* kind(WorldRank peer) const override { return inner_->kind(peer); }
  int connections(WorldRank peer) const override { return inner_->connections(peer); }
  bool flushed() const override { return inner_->flushed(); }
  void set_close_patience(Nanoseconds patience) override { inner_->set_close_patience(patience); }
  void close() override { inner_->close(); }

 private:
  void charge(std::size_t bytes);

  std::unique_ptr<Transport> inner_;
  std::uint64_t bytes_per_second_;
  Nanoseconds burst_;
  const Clock& clock_;
  TimePoint balanced_at_;       // when the balance is, or was, zero
  std::uint64_t fraction_ = 0;  // of a nanosecond, in units of 1 / bytes_per_second_, not yet charged
  bool has_refused_ = false;    // and no sleep has lasted since until the reservation could be granted
};

}  // namespace qccl
