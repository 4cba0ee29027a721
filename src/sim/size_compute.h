// Computes nothing: payloads have their largest size and no content, and a meter learns what would have been computed.
#pragma once

#include <functional>
#include <vector>

#include "engine/compute/compute.h"
#include "plan/cost/cost.h"

namespace qccl::sim {

// The work of one step on a slice of so many elements.
using WorkMeter = std::function<void(const plan::StepWork& work, std::size_t elements)>;

class SizeCompute final : public engine::Compute {
 public:
  SizeCompute(const engine::ComputeContext& context, WorkMeter meter);

  void begin(const engine::CallArguments&) override {}
  void begin_slice(std::size_t lane, std::uint64_t slice) override;
  void end_lane(std::size_t) override {}
  engine::Outgoing outgoing(std::size_t lane, std::size_t step, GroupRank peer) override;
  std::size_t write(std::size_t lane, std::size_t step, GroupRank peer, Bytes payload) override;
  Status receive(std::size_t lane, std::size_t step, ConstBytes payload) override;
  bool keeps_part(std::size_t) const override { return false; }
  Status local(std::size_t lane, std::size_t step) override;
  std::byte* find_destination(std::size_t, std::uint64_t) override { return nullptr; }

 private:
  static constexpr std::size_t kNoStep = static_cast<std::size_t>(-1);
  struct Lane {
    std::uint64_t slice = 0;
    std::size_t encoded_step = kNoStep;  // a send step encodes once for all of its peers
  };

  std::size_t elements(std::size_t lane) const;
  void measure(std::size_t lane, std::size_t step) const;

  const engine::ExecutablePlan& plan_;
  const WorkMeter meter_;
  std::vector<Lane> lanes_;
};

}  // namespace qccl::sim
