// Computes on a device, lane by lane (device_lane.h). Nothing waits there for a peer, and the host only ever looks
// whether jobs have ended.
#pragma once

#include <memory>
#include <vector>

#include "device_engine/lanes/device_lane.h"
#include "engine/compute/compute.h"

namespace qccl::engine {

class DeviceCompute final : public Compute {
 public:
  // The plan has a DeviceLayout.
  explicit DeviceCompute(const ComputeContext& context);

  void begin(const CallArguments& arguments) override;
  void begin_slice(std::size_t lane, std::uint64_t slice) override { lanes_[lane].begin_slice(slice); }
  void end_lane(std::size_t) override {}
  Outgoing outgoing(std::size_t lane, std::size_t step, GroupRank peer) override;
  std::size_t write(std::size_t, std::size_t, GroupRank, Bytes) override { return 0; }
  Status receive(std::size_t lane, std::size_t step, ConstBytes payload) override {
    return lanes_[lane].receive(step, payload);
  }
  bool keeps_part(std::size_t) const override { return false; }
  Status local(std::size_t lane, std::size_t step) override;
  std::byte* find_destination(std::size_t, std::uint64_t) override { return nullptr; }

  void take_back() override;

  std::unique_ptr<DeferredSteps> defer(InboundStreams& inbound, OutboundStreams& outbound) override;

  // For the deferred steps.
  DeviceLane& lane(std::size_t index) { return lanes_[index]; }
  // Whether any of the device's work has ended since the last time.
  Result<bool> look();
  // Launches what was added.
  Status submit();
  bool is_idle() const;

 private:
  const std::uint64_t seed_;
  DeviceCall call_;
  std::vector<DeviceLane> lanes_;
};

}  // namespace qccl::engine
