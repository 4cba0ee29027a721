// An operation that executes a plan: see operation.h.
#pragma once

#include "engine/operation.h"

namespace qccl::engine {

struct PlanOptions {
  std::uint64_t slice_elements = 0;  // from codec/slicing.h, the same on all ranks
  std::uint64_t seed = 0;            // of codecs that draw random numbers
};

class PlanOperation final : public Operation {
 public:
  PlanOperation(const Group& group, std::uint64_t sequence, Post post, TimePoint posted, Outlet& outlet,
                BufferPool& pool, const PlanOptions& options);
  ~PlanOperation() override { drop_frames(); }

  bool serves(const Group& group, const Post& post) const override {
    return &group == &group_ && !post.message && post.call == call();
  }
  void restart(std::uint64_t sequence, Post post, TimePoint posted);

  Result<bool> advance() override;
  bool finished() const override { return unfinished_lanes_ == 0; }
  Status on_data(int peer, const wire::FrameHeader& header, const ReceivedFrame& frame) override;
  Status on_grant(int peer, const wire::FrameHeader& header) override;
  Status on_request(int peer, const wire::FrameHeader& header) override;
  Waiting waiting() const override;
  bool lacks(int member) const override;
  void drop_frames() override;

 private:
  struct Held {
    ReceivedFrame frame;
    ConstBytes payload;
    bool eager = false;
  };
  struct Inbound {
    int peer;  // group rank
    std::uint16_t phase;
    std::uint32_t chunk;
    std::uint64_t slices;
    bool eager;                  // small enough to come without a grant
    bool announced = false;      // its sender hears from us by its grant alone
    std::uint64_t received = 0;  // slices, in order
    std::uint64_t consumed = 0;
    std::uint64_t granted = 0;  // announced
    std::uint64_t received_bytes = 0;
    std::uint64_t expected_bytes;  // upper limit, for reports
    std::array<Held, kWindow> held{};
  };
  struct Outbound {
    int peer;
    std::uint16_t phase;
    std::uint32_t chunk;
    std::uint64_t slices;
    bool eager;
    bool announced = false;  // its receiver hears from us by our request alone
    std::uint64_t sent = 0;
    std::uint64_t granted = 0;
    bool requested = false;
  };
  struct LaneRun {
    const plan::Lane* lane;
    std::vector<std::size_t> streams;  // per step: index of its (first) stream
    std::uint64_t slices = 0;
    std::uint64_t slice = 0;
    std::size_t step = 0;
    std::size_t served = 0;  // peers of a send step that have their frame
    bool finishes = false;
    int reduced_parts = 0;
    LaneMath math;
    Held pending;   // the first part of a raw reduction, only pointed at
    Held received;  // by recv_copy, for forward
  };
  enum class Outcome { done, blocked };

  MathContext math_context() const;
  void build_streams();
  void begin();
  void add_streams(LaneRun& run, const plan::Step& step);
  void choose_announcements();
  std::uint64_t stream_slices(std::uint64_t elements) const;
  std::size_t payload_limit(std::uint64_t elements, bool raw) const;
  bool is_eager(std::uint64_t elements, bool raw) const;
  Inbound* inbound(int peer, std::uint16_t phase, std::uint32_t chunk);
  Outbound* outbound(int peer, std::uint16_t phase, std::uint32_t chunk);
  Status unexpected(int peer, const wire::FrameHeader& header, const std::string& what) const;

  Result<bool> advance_lane(LaneRun& run);
  void begin_slice(LaneRun& run);
  void end_slice(LaneRun& run);
  Result<Outcome> take(LaneRun& run, const plan::Step& step);
  Outcome take_size_only(LaneRun& run, const plan::Step& step);
  bool may_begin(const LaneRun& run) const;
  Outcome send(LaneRun& run, const plan::Step& step);
  bool send_slice(LaneRun& run, const plan::Step& step, Outbound& to);
  ConstBytes ready_payload(LaneRun& run, const plan::Step& step);
  std::size_t write_payload(LaneRun& run, const plan::Step& step, Bytes payload);
  bool may_send(Outbound& to, std::size_t bytes, bool& eagerly);
  Result<Outcome> local_reduce(LaneRun& run, const plan::Step& step);
  Result<Outcome> recv_reduce(LaneRun& run, const plan::Step& step);
  Result<Outcome> recv_copy(LaneRun& run, const plan::Step& step);
  Status finish_slice(LaneRun& run);
  Status local_copy(LaneRun& run, const plan::Step& step);

  std::vector<int> late_senders() const;
  Held* next_held(Inbound& from);
  Held take_held(Inbound& from);
  void release(Held& held);
  bool announce();
  bool announce_grants();
  bool announce_sends();
  bool needs_grant(const Inbound& stream) const;
  wire::FrameHeader header(wire::FrameKind kind, std::uint16_t phase, std::uint32_t chunk, std::uint64_t slice) const;

  std::size_t slice_length(std::uint64_t elements, std::uint64_t slice) const;
  std::size_t slice_length(const LaneRun& run) const;
  const std::byte* input_slice(LaneRun& run);
  std::byte* output_slice(LaneRun& run);
  bool is_requantized(const LaneRun& run) const;

  const std::uint64_t slice_elements_;
  const std::uint64_t seed_;
  const plan::Role role_;
  MathContext math_;
  std::vector<Inbound> inbound_;
  std::vector<Outbound> outbound_;
  std::vector<Inbound> unused_inbound_;  // as they were before anything moved
  std::vector<Outbound> unused_outbound_;
  std::vector<LaneRun> lanes_;
  std::size_t unfinished_lanes_ = 0;
  bool grants_dirty_ = true;
  bool sends_announced_ = false;
};

}  // namespace qccl::engine
