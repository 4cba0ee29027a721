// Computes on the host: the lanes' arithmetic on the caller's buffers and on received payloads.
#pragma once

#include <vector>

#include "engine/compute/compute.h"
#include "engine/compute/math_context.h"
#include "engine/compute/slice_encoder.h"
#include "plan/plan.h"

namespace qccl::engine {

class HostCompute final : public Compute {
 public:
  explicit HostCompute(const ComputeContext& context);

  void begin(const CallArguments& arguments) override;
  void begin_slice(std::size_t lane, std::uint64_t slice) override;
  void end_lane(std::size_t lane) override;
  Outgoing outgoing(std::size_t lane, std::size_t step, GroupRank peer) override;
  std::size_t write(std::size_t lane, std::size_t step, GroupRank peer, Bytes payload) override;
  Status receive(std::size_t lane, std::size_t step, ConstBytes payload) override;
  bool keeps_part(std::size_t lane) const override { return lanes_[lane].sum.keeps_part(); }
  Status local(std::size_t lane, std::size_t step) override;
  std::byte* find_destination(std::size_t lane, std::uint64_t slice) override;
  void take_back() override;

 private:
  struct Lane {
    explicit Lane(const MathContext& math) : input(math), encoder(math), sum(math) {}

    const plan::Lane* plan = nullptr;
    bool finishes = false;
    int reduced_parts = 0;
    std::uint64_t slice = 0;
    std::uint64_t kept_slices = 0;  // the first ones, whose input was used
    ConstBytes received{};          // by recv_copy, for forward
    InputSource input;
    SliceEncoder encoder;
    SliceAccumulator sum;
    ScratchPool::Buffer scratch;  // takes the place of the caller's output
  };

  ConstBytes ready_payload(Lane& lane, const plan::Step& step);
  Status reduce_own(Lane& lane, const plan::Step& step);
  Status copy_own(Lane& lane, const plan::Step& step);

  // Raw frames between ranks that map each other's buffers (MappedRegion) only announce their slices: inputs are read
  // and results are written where they belong. A result follows from all inputs, so no input is overwritten before it
  // has been read.
  bool is_mapped(const plan::Step& step, GroupRank peer) const;
  std::byte* mapped_slice(const Lane& lane, GroupRank peer, std::uint64_t begin) const;
  ConstBytes payload_of(Lane& lane, const plan::Step& step, ConstBytes payload);

  bool is_raw(const plan::Step& step) const { return math_.codec == nullptr || step.raw; }
  std::size_t elements(const Lane& lane) const { return plan_.slice_length(lane.plan->count, lane.slice); }
  std::size_t offset(std::uint64_t begin, std::uint64_t slice) const;
  void keep(Lane& lane, const std::byte* input);
  const std::byte* input_slice(Lane& lane);
  std::byte* output_slice(Lane& lane);
  std::byte* output_slice(const Lane& lane, std::uint64_t slice) const;

  const ExecutablePlan& plan_;
  const std::uint64_t seed_;
  const CallArguments* arguments_ = nullptr;
  MathContext math_;
  std::vector<Lane> lanes_;
};

}  // namespace qccl::engine
