// Computes on a device, lane by lane (device_lane.h). Nothing waits there for a peer, and the host only ever looks
// whether jobs have ended.
#pragma once

#include <vector>

#include "engine/compute/compute.h"
#include "engine/compute/device_lane.h"

namespace qccl::engine {

class DeviceCompute final : public Compute, public LaterWork {
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

  LaterWork* later() override { return this; }
  bool has_room(std::size_t lane) const override { return lanes_[lane].has_room(); }
  bool takes_frames(std::size_t lane, std::size_t step) const override { return lanes_[lane].takes_frames(step); }
  bool begin_payload(std::size_t lane, std::size_t step, std::span<const Bytes> frames) override {
    return lanes_[lane].begin_payload(step, frames);
  }
  ConstBytes find_payload(std::size_t lane, std::uint64_t slice) const override {
    return lanes_[lane].find_payload(slice);
  }
  void note_sent(std::size_t lane, std::uint64_t slice) override { lanes_[lane].note_sent(slice); }
  std::byte* find_place(std::size_t lane, std::size_t step, std::uint64_t slice) const override {
    return lanes_[lane].find_place(step, slice);
  }
  bool keeps_payload(std::size_t lane) const override { return lanes_[lane].arrivals().last_stays(); }
  bool has_read(std::size_t lane, std::uint64_t slice) const override { return lanes_[lane].tickets().is_done(slice); }
  Result<bool> look() override;
  Status submit() override;
  bool is_idle() const override;

 private:
  const std::uint64_t seed_;
  DeviceCall call_;
  std::vector<DeviceLane> lanes_;
};

}  // namespace qccl::engine
