// What a Communicator handle points to: one group of a context.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "codec/codec_cache.h"
#include "comm/choice/choice.h"
#include "comm/context.h"
#include "comm/onebit_allreduce.h"
#include "comm/shared_regions.h"

namespace qccl::internal {

// Thread-safe. Owned by the user's handles; the destructor waits for this group's operations
// (each has a deadline) and closes the group.
class CommunicatorState {
 public:
  // Collective over the group. `parent` is the group that it is made from, if any: a failure of that ends the wait for
  // the other ranks.
  static Result<std::shared_ptr<CommunicatorState>> open(std::shared_ptr<comm::Context> context, std::uint64_t id,
                                                         std::string name, std::vector<int> ranks,
                                                         std::optional<std::uint64_t> parent = std::nullopt);
  ~CommunicatorState();

  // A call as its buffers and options say; blocking ones throw, others return the Work's state.
  struct Request {
    Collective collective;
    const void* input;
    void* output;
    std::size_t count;
    DataType type;
    const CallOptions& options;
    std::optional<PooledVector<std::uint64_t>> counts{};  // the v forms, as engine::Call has them
  };
  // Between group_start() and group_end() of the calling thread both only record the call.
  void run(const Request& request);
  std::shared_ptr<WorkState> post(const Request& request);

  // The same for a send or a recv.
  struct MessageRequest {
    const void* input;  // of a send, else null
    void* output;       // of a recv
    bool incoming;
    std::size_t count;
    DataType type;
    int peer;
    const MessageOptions& options;
  };
  // The rank the message came from; -1 for a send, or where the call was only recorded.
  int run(const MessageRequest& request);
  std::shared_ptr<WorkState> post(const MessageRequest& request);
  // Both at once; the rank the second one's message came from.
  int run(const MessageRequest& send, const MessageRequest& receive);
  // All as one.
  void run(std::span<const Request> requests);
  std::shared_ptr<WorkState> post(std::span<const Request> requests);

  void group_start();
  std::shared_ptr<WorkState> group_end();

  // Groups made of this one's ranks: see Communicator. split() gives null for no colour.
  std::shared_ptr<CommunicatorState> subgroup(const std::vector<int>& members, const std::string& name);
  std::shared_ptr<CommunicatorState> split(int colour, int key);
  std::shared_ptr<CommunicatorState> dup();

  void abort(const std::string& reason);
  void close();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::string& name() const { return name_; }
  const std::vector<int>& ranks() const { return ranks_; }
  std::uint64_t id() const { return id_; }
  // Throws misuse once closed, and in a forked child.
  std::shared_ptr<comm::Context> context() const;

  SharedRegions& regions() { return regions_; }
  OnebitMemory& onebit_memory() { return onebit_memory_; }
  comm::GroupDefaults defaults() const;
  // What a call would become now, and why it has its algorithm.
  engine::Call call_of(Collective collective, std::size_t count, DataType type, const CallOptions& options) const;
  std::string explain(Collective collective, std::size_t count, DataType type, const CallOptions& options) const;
  void set_compression(const Compression& compression);
  void set_timeout(Milliseconds timeout);

  Error wrong_argument(const comm::Context& context, std::string operation, const std::string& what) const;
  // Throws misuse between group_start() and group_end(): `what` exchanges data, which a recorded call would not.
  void refuse_recording(comm::Context& context, const char* what) const;

 private:
  CommunicatorState(std::shared_ptr<comm::Context> context, std::uint64_t id, std::string name, std::vector<int> ranks);
  // With mutex_ held.
  const std::shared_ptr<comm::Context>& usable_context() const;
  engine::Post make_post(const Request& request, comm::Context& context);
  engine::Post make_post(const MessageRequest& request, comm::Context& context);
  // Sets `context` too, under the same lock. A wrong call among those recorded ends the recording.
  template <class AnyRequest>
  engine::Post prepare(const AnyRequest& request, std::shared_ptr<comm::Context>& context) {
    const std::lock_guard lock(mutex_);
    context = usable_context();
    try {
      return make_post(request, *context);
    } catch (...) {
      context->recorder().cancel();
      throw;
    }
  }
  // Counts the collectives that are about to be posted, at most engine::max_in_flight(), as in flight. Blocks while too
  // many are, each of which has a deadline.
  void make_room(comm::Context& context, std::span<engine::Post> posts);
  // Posts a list that is longer than may be in flight in windows, and returns the last, for the caller to post. Room is
  // made for each. Messages go first: a peer may need them before it joins the collectives.
  engine::PostList post_all_but_last(comm::Context& context, engine::PostList posts);
  std::shared_ptr<WorkState> begin(engine::Post post, const std::shared_ptr<comm::Context>& context);
  template <class AnyRequest>
  engine::PostList prepare_all(std::span<const AnyRequest> requests, std::shared_ptr<comm::Context>& context);
  void find_region(engine::Post& post, const Request& request);
  bool suits_region(const engine::Call& call, const engine::SharedRegion& region, const CallOptions& options) const;
  std::string wrong_buffers(const engine::Call& call, const Request& request) const;
  std::shared_ptr<comm::Context> take_context();
  std::vector<int> world_ranks(const std::vector<int>& members) const;
  std::uint64_t next_child_id();
  void leave(comm::Context& context);

  // A call with automatic compression that is part of a trial: where its time goes.
  struct TimedCall {
    std::shared_ptr<comm::TrialTimes> times;
    std::size_t candidate;
  };
  bool is_automatic(const Request& request) const;
  std::optional<TimedCall> advance_trial(const Request& request);
  engine::Post comparison(comm::AutoTable::Class& calls, comm::Context& context);
  engine::Post prepare_timed(const Request& request, std::shared_ptr<comm::Context>& context);

  const std::uint64_t id_;
  const std::string name_;
  const std::vector<int> ranks_;  // world ranks
  int rank_ = 0;                  // in the group
  SharedRegions regions_;
  OnebitMemory onebit_memory_;
  const std::shared_ptr<std::atomic<std::size_t>> in_flight_ = std::make_shared<std::atomic<std::size_t>>(0);
  const std::shared_ptr<WorkState> quiet_ = std::make_shared<WorkState>();  // ends when a closing group is quiet

  std::atomic<bool> defaults_to_automatic_{false};  // what defaults_.compression is

  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<comm::Context> context_;
  comm::GroupDefaults defaults_;
  comm::AlgorithmTable table_;
  Nanoseconds timeout_;
  CodecCache codecs_;
  comm::AutoTable automatic_;
  std::uint64_t children_ = 0;                                  // by split() and dup(), alike on all ranks
  std::unordered_map<std::uint64_t, std::uint64_t> subgroups_;  // how many of a list and name, by digest
};

}  // namespace qccl::internal
