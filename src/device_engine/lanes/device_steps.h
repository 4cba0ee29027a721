// The frames of lanes that a device computes: those that are sent once their payload is made, and those that were
// received and are still being read.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "device_engine/lanes/device_lane.h"
#include "engine/compute/deferred_steps.h"
#include "engine/run/streams.h"

namespace qccl::engine {

class DeviceCompute;

// One thread. What it stands on outlives it. Allocates in its constructor alone.
class DeviceSteps final : public DeferredSteps {
 public:
  DeviceSteps(const ExecutablePlan& plan, DeviceCompute& compute, InboundStreams& inbound, OutboundStreams& outbound);
  ~DeviceSteps() override;

  bool may_begin(std::size_t lane) const override;
  bool begin_send(std::size_t lane, std::uint64_t slice, std::size_t step) override;
  bool has_sends(std::size_t lane) const override { return !sends_[lane].empty(); }
  LaneAdvance send(std::size_t lane, std::uint64_t& sent_bytes) override;
  std::uint64_t unsent_slice(std::size_t lane) const override {
    return has_sends(lane) ? sends_[lane].front().slice : UINT64_MAX;
  }
  std::byte* find_place(std::size_t lane, std::size_t step, std::uint64_t slice) const override;
  bool keeps_payload(std::size_t lane) const override;
  void release_read() override;
  Result<bool> look() override;
  Status submit() override;
  bool is_idle() const override;
  void drop() override;
  bool has_none() const override {
    return !inbound_.keeps_any() && std::ranges::all_of(sends_, [](const auto& sends) { return sends.empty(); });
  }

 private:
  struct Send {
    std::uint64_t slice;
    std::size_t step;
    std::optional<std::size_t> bytes{};                        // of the payload, once it is made
    std::size_t sent = 0;                                      // to the first peers of the step
    std::array<Reservation, DeviceLane::kMostFrames> rooms{};  // of the first peers, where it is written besides
  };
  std::size_t stream_of(std::size_t lane, const Send& send, std::size_t peer) const {
    return plan_.streams().first[lane][send.step] + peer;
  }
  void hold_rooms(std::size_t lane, Send& send);
  std::size_t measure(std::size_t lane, const Send& send, ConstBytes place) const;
  StepStatus send_payload(std::size_t stream, ConstBytes payload, Reservation* held);

  const ExecutablePlan& plan_;
  DeviceCompute& compute_;
  InboundStreams& inbound_;
  OutboundStreams& outbound_;
  std::vector<std::vector<Send>> sends_;  // of each lane
};

}  // namespace qccl::engine
