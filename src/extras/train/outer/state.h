// The state of an OuterLoop. A round of a fragment: the delta is taken and posted (begin), the average awaited `delay`
// steps later, the global values stepped and the own ones blended (end). advance() does what is due; after a failure
// it is called again in another group, and goes on where it was.
#pragma once

#include <algorithm>
#include <optional>

#include "extras/train/outer/run.h"
#include "extras/train/outer/standing.h"

namespace qccl::train {

// The rank that sends its values, and those that receive them.
struct OuterHandover {
  int source = 0;
  std::vector<int> takers;  // ranks

  bool is_taker(int rank) const { return std::ranges::find(takers, rank) != takers.end(); }
};

class OuterLoop::State {
 public:
  State(Communicator group, std::vector<OuterParameter> parameters, const OuterOptions& options);
  ~State();

  void step(double samples);
  void finish();
  void regroup(const Communicator& group);
  void begin_waiting() { run_.journal.enter(run_.now()); }

  bool is_lost() const { return is_lost_; }
  const Communicator& group() const { return group_; }
  OuterRun& run() { return run_; }
  void load(std::span<const std::byte> saved, bool is_own) { run_.load(saved, is_own, group_); }

 private:
  // Does what is due, first going over to the group `next`; with OuterOptions::go_on goes on after losses.
  void drive(std::optional<Communicator> next = {});
  Communicator group_after(const Error& loss);
  void go_over_to(const Communicator& group);
  void advance();
  void post();
  void compare_loaded();
  void leave_calls();
  void require_equal_ranks();
  void end_round();

  // ---- membership (membership.cc)
  void settle();
  OuterStanding standing() const;
  // `keeps_training`: a taker's own values move as the global ones do.
  void take_over(std::size_t fragment, const OuterHandover& handover, bool keeps_training);
  void take_over_all(const OuterHandover& handover, const OuterStanding& there);
  // To ranks that lack the last round. `took_part`: it had this rank's delta.
  void catch_up(const OuterHandover& handover, const OuterStanding& there, bool took_part);
  void hand_over(std::span<std::byte> data, const OuterHandover& handover);
  void forget_training();
  // Begins the round that is in flight at the source, in this step, and waits for the next one as the source does.
  void begin_as(const OuterStanding& there, std::uint64_t begun_at);
  void end_missed_round();

  // A loss shrinks this group, not its dup, which a rank may lack: all ranks then shrink the same one.
  Communicator given_;
  Communicator group_;              // its dup
  std::uint64_t group_number_ = 0;  // random; no other group has it
  OuterRun run_;
  bool lacks_state_ = true;  // the global model is still to be taken over
  bool is_lost_ = false;
};

}  // namespace qccl::train
