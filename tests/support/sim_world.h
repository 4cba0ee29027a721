// A sim::SimulatedJob whose ranks post calls with data: whole collectives in microseconds, repeatable from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "choice/resolve.h"
#include "engine/engine.h"
#include "sim/simulated_job.h"

namespace qccl::testing {

inline constexpr std::uint64_t kSimGroup = 1;

struct SimOptions {
  std::uint64_t seed = 1;
  sim::NetworkOptions link{
      .bytes_per_second = 1e9, .latency = std::chrono::microseconds(20), .jitter = std::chrono::microseconds(30)};
  std::size_t slice_bytes = kDefaultSliceBytes;
  std::vector<std::size_t> slice_bytes_of_rank{};  // if they differ
  std::uint64_t window_bytes = 0;                  // of distant ranks; 0: they are near
  Nanoseconds peer_timeout = std::chrono::seconds(60);
  std::vector<int> hosts{};  // of each rank; empty: all share one
  bool open_world_group = true;
  std::uint64_t codec_seed = 0;
  std::shared_ptr<const Codec> codec{};   // replaces the codec of every compressed call
  std::vector<ErrorFeedback> feedback{};  // of each rank, for calls that use it
  std::vector<std::shared_ptr<internal::LogStore>> logs{};
};

// One rank's buffers of a call.
struct SimBuffers {
  std::vector<std::byte> input;
  std::vector<std::byte> output;  // empty: in place, in `input`
};

// The data of a send or a recv.
struct SimMessage {
  std::uint64_t count;
  DataType type;
  std::byte* data;
  Nanoseconds timeout = std::chrono::seconds(10);
  std::uint64_t group = kSimGroup;
  ErrorFeedback feedback{};
};

// A call of shrink() on one rank.
struct SimShrink {
  std::vector<int> without{};  // group ranks
  Quorum quorum = Quorum::majority;
  Nanoseconds patience = std::chrono::seconds(2);
  Nanoseconds timeout = std::chrono::seconds(20);
  std::uint64_t group = kSimGroup;
};

// An operation's state on one rank, which says how it has ended.
using SimWork = std::shared_ptr<internal::WorkState>;

struct SimArguments {
  const std::byte* input;
  std::byte* output;
  Nanoseconds timeout = std::chrono::seconds(10);
  std::uint64_t group = kSimGroup;
  ErrorFeedback feedback{};  // instead of SimOptions::feedback
  bool keep_input = false;
};

class SimWorld {
 public:
  SimWorld(int world, SimOptions options = {});

  int size() const { return world_.size(); }
  engine::Engine& engine(int rank) { return world_.engine(rank); }
  sim::Network& network() { return world_.network(); }
  TimePoint now() { return world_.now(); }

  // Opens the group on all the ranks in it, or on `rank` alone.
  void open_group(std::uint64_t id, const std::string& name, const std::vector<int>& ranks);
  void open_group_on(int rank, std::uint64_t id, const std::string& name, const std::vector<int>& ranks);

  // The members of a group that the test opens on the engines itself.
  void set_members(std::uint64_t id, const std::vector<int>& ranks) { groups_[id] = ranks; }

  // Posts a call on one rank; the buffers must live until it is done. Factors are premul_factor_of()'s.
  SimWork post(int rank, const engine::ResolvedCall& call, const SimArguments& arguments);
  // Posts a send or a recv on one rank.
  SimWork post_message(int rank, const engine::Message& message, const SimMessage& of);
  // Calls shrink() on one rank. The members that go on are in `then`, as world ranks, once the work has ended well.
  struct Shrinking {
    SimWork work;
    std::shared_ptr<std::vector<GroupRank>> members;
    std::vector<int> then(const std::vector<int>& ranks) const;
  };
  Shrinking shrink(int rank, const SimShrink& call = {});
  // Runs until the condition holds; false if virtual time reaches `limit` first.
  bool run_until(const std::function<bool()>& condition, Nanoseconds limit = std::chrono::seconds(100)) {
    return world_.run_until(condition, limit);
  }
  // Runs until all the works are done; false if virtual time reaches `limit` first.
  bool run(const std::vector<SimWork>& works, Nanoseconds limit = std::chrono::seconds(100));
  void run_for(Nanoseconds duration);
  // One call on all ranks to its end; returns the first failure.
  std::optional<ErrorInfo> collective(const engine::ResolvedCall& call, std::vector<SimBuffers>& buffers);
  // Lets everything in flight arrive.
  void settle() { world_.settle(); }
  // Frames that running ranks have received and not released.
  std::size_t held_frames();

 private:
  std::shared_ptr<const engine::ExecutablePlan> plan_of(engine::ResolvedCall call, int rank,
                                                        const std::vector<int>& members, int member);

  const std::shared_ptr<const Codec> codec_;
  const std::vector<ErrorFeedback> feedback_;
  engine::KeptPool kept_inputs_;  // outlives the engines
  sim::SimulatedJob world_;
  std::map<std::uint64_t, std::vector<int>> groups_;  // world ranks of the open groups
};

// Resolves a call with these options, as the public API does.
Result<engine::ResolvedCall> resolve_call(Collective collective, std::uint64_t count, DataType type, int world,
                                          const CallOptions& options = {});
// The v forms.
Result<engine::ResolvedCall> resolve_call(Collective collective, const std::vector<std::uint64_t>& counts,
                                          DataType type, int world, const CallOptions& options = {});

// The same in a group with settings of its own.
struct TestGroup {
  int world;
  const comm::GroupDefaults& defaults;
  Result<engine::ResolvedCall> resolve(Collective collective, std::uint64_t count, DataType type,
                                       const CallOptions& options = {}) const;
};

// A call that must be valid.
engine::ResolvedCall make_call(Collective collective, std::uint64_t count, DataType type, int world,
                               const CallOptions& options = {});

}  // namespace qccl::testing
