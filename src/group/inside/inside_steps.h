// The steps of one call of a group with another library inside its hosts (include/qccl/inside.h).
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "group/inside/host_layout.h"
#include "qccl/call.h"
#include "qccl/communicator.h"
#include "qccl/inside.h"

namespace qccl::comm {
class Context;
}

namespace qccl::internal {

class CommunicatorState;
class FeedbackState;
class WorkState;

// Memory of calls in flight, kept for later ones. Thread-safe.
class InsideMemory {
 public:
  using Block = std::unique_ptr<std::byte[]>;
  struct Taken {
    Block block{};
    std::size_t bytes = 0;
    std::byte* get() const { return block.get(); }
  };
  Taken take(std::size_t bytes);
  void give_back(Taken taken);

 private:
  static constexpr std::size_t kKept = 4;

  std::mutex mutex_;
  std::vector<Taken> free_;
};

// Elements of a whole error feedback and their place in that of a share.
struct ResidualPart {
  std::size_t of_whole;
  std::size_t of_share;
  std::size_t count;
};

// A call under way.
struct InsideJob {
  CollectiveCall call;  // with its compression; the timeout is the deadline
  TimePoint deadline;
  std::string description{};  // of the resolved call, for errors
  std::uint64_t fingerprint = 0;
  std::uint64_t number = 0;
  std::shared_ptr<WorkState> work{};                  // the caller's
  std::vector<std::shared_ptr<WorkState>> between{};  // calls between hosts
  InsideMemory::Taken memory{};                       // what travels between hosts, where that is not the caller's
  // The call's error feedback, which is the job's until its end; null: without. What travels has one of its own.
  std::shared_ptr<FeedbackState> feedback{};
  ErrorFeedback share_feedback{};
  std::vector<ResidualPart> residual_parts{};
  std::shared_ptr<InsideJob> next{};  // InsideQueue's link
};

// Owned by InsideCalls. One thread begins jobs, another ends them, both in the group's order.
class InsideSteps {
 public:
  // Collective over the group. Throws Error, and what the factory throws.
  InsideSteps(CommunicatorState& group, const comm::Context& context, const InsideFactory& make_inside);
  ~InsideSteps();

  // Whether calls like this one take these steps: the same on all ranks.
  bool suits(const CollectiveCall& call) const;

  // Inside the hosts, then posts what goes between them. Throws Error(misuse) if ranks of this host made different
  // calls, and what the group inside throws.
  void begin(InsideJob& job);
  // Once that has ended well: inside the hosts again.
  void end(InsideJob& job);

  // Ends what is under way and to come; any thread.
  void abort() noexcept;
  // Calls between hosts that one job posts at most.
  std::size_t shares() const { return shares_.size(); }
  // "host 1 (ranks 4, 5, 6, 7)"
  std::string describe_host() const;
  // All groups that it has made.
  std::vector<std::shared_ptr<CommunicatorState>> groups() const;

 private:
  // A cell of this rank and the group of its owners; null: this host is the only one.
  struct Share {
    comm::HostLayout::Cell cell;
    std::shared_ptr<CommunicatorState> owners;
  };

  void open_shares(CommunicatorState& group);
  void agree(const InsideJob& job);
  void begin_all_reduce(InsideJob& job);
  void begin_reduce_scatter(InsideJob& job);
  void begin_all_gather(InsideJob& job);
  void begin_broadcast(InsideJob& job);
  void begin_all_to_all(InsideJob& job);
  void post_shares(InsideJob& job);
  void reduce_rest(const InsideJob& job);
  void post_between(InsideJob& job, const void* input, void* output, std::size_t count);
  // Those of the job. What travels gets its parts of the residual.
  CallOptions options_between(InsideJob& job) const;
  void gather_shares(const InsideJob& job);
  std::size_t rest_of(const CollectiveCall& call) const { return call.count % layout_.units; }
  int last_place() const { return static_cast<int>(layout_.own_host().size()) - 1; }
  InsideCall inside_call(const InsideJob& job, const void* input, void* output, std::size_t count) const;
  Milliseconds time_left(const InsideJob& job) const;

  const Clock& clock_;
  const comm::HostLayout layout_;
  // This host's ranks: to agree, and for the few elements that can't be shared evenly. Of begin() and of end().
  std::shared_ptr<CommunicatorState> host_;
  std::shared_ptr<CommunicatorState> ending_host_;
  std::vector<Share> shares_;
  std::unique_ptr<InsideGroup> first_;   // of begin(); null: this rank is alone on its host
  std::unique_ptr<InsideGroup> second_;  // of end()
  InsideMemory memory_;
};

}  // namespace qccl::internal
