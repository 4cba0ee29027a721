// The state of an OuterLoop. A round of a fragment: the delta is taken and posted (begin), the average awaited `delay`
// steps later, the global values stepped and the own ones blended (end). advance() does what is due; after a failure
// it is called again in another group, and goes on where it was.
#pragma once

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "train/outer_control.h"
#include "train/outer_model.h"

namespace qccl::train {

// Throws an error that names the rank and the group.
[[noreturn]] void fail(const Communicator& group, ErrorKind kind, const std::string& what);

// When rounds begin and end. Rounds are numbered; round r is that of fragment r mod `fragments`.
struct OuterSchedule {
  const OuterOptions& options;
  const SteadyClock clock{};
  std::uint64_t steps = 0;
  std::uint64_t rounds = 0;                         // ended on this rank
  std::uint64_t origin_step = 0, origin_round = 0;  // where it was last begun anew
  std::uint64_t begun_at = 0;                       // step of the round in flight
  TimePoint next_begin{};                           // with every_time
  bool is_finishing = false;
  bool is_loaded = false;                 // and has ended no round since
  bool has_skipped = false;               // the last round, so that its fragment is still to be synchronised
  std::uint64_t rounds_in_agreement = 0;  // the last ones, which all ranks began in finish(), having skipped none
  std::uint64_t finishes = 0;             // calls of finish() that ended on this rank

  void begin_anew();
  void begin_in(Nanoseconds time) { next_begin = clock.now() + time; }
  void end_finish();
  void wait_for_next();
  // `ended`: rounds ended by then.
  bool is_begin_due(std::uint64_t at_step, std::uint64_t ended) const;
  bool is_end_due(std::uint64_t at_step) const { return is_finishing || at_step >= begun_at + options.delay; }
  std::size_t fragment() const { return rounds % options.fragments; }
};

// Which rounds have led to the global model. Ranks whose `now` is equal have the same one.
struct OuterLineage {
  std::uint64_t now = 0, before_last_round = 0;  // digests
  std::uint64_t last_group = 0;                  // the number of the group in which the last round ended

  void add(std::uint64_t group_number);
  // The model comes from no round: no other rank has it, unless it takes this over.
  void begin(std::uint64_t number) { *this = {.now = number}; }
};

// The round in flight: what is sent, received and owed.
struct OuterFlight {
  bool is_begun = false, is_posted = false;
  // No rank had trained the fragment of the last round: it changed neither the global model nor residuals.
  bool was_idle = false;
  std::vector<std::uint64_t> posted_in;  // numbers of groups
  double weight = 1;                     // of this rank's delta; 0 if it has not trained
  double rate = 0;                       // the optimizer's, when the round began
  double delta_norm = 0;                 // of this rank
  std::vector<float> sent, received;
  OuterControl control;
  ErrorFeedback feedback;
  std::vector<Work> works;

  // Until the calls have ended, even with an error: the first one is thrown, and the round is to be posted again.
  void wait();
  // The round ended with a call of this rank's that failed here, and was the `counter`th with the feedback.
  void redo_feedback(std::uint64_t counter, std::uint64_t in_group);
};

// What rounds cost, for OuterLoop::history().
struct OuterJournal {
  std::uint64_t bytes_before = 0;    // of the group's context, when the round began
  std::optional<TimePoint> entered;  // since then this rank has not trained
  Nanoseconds waited{};              // before that, since the end of the last round
  TimePoint last_end{};
  std::vector<OuterRound> rounds;

  void enter(TimePoint now) { entered = entered.value_or(now); }
  void leave(TimePoint now);
  void begin(const Communicator& group);
  // Counts on in a group that may be of another context.
  void move(const Communicator& from, const Communicator& to);
  void add(OuterRound round, const Communicator& group);
  // Completes the last round, and adds it to the log.
  void end(TimePoint now, const Communicator& group);
};

// All that a rank has of an OuterLoop, besides the group.
struct OuterRun {
  OuterRun(std::vector<OuterParameter> parameters, const OuterOptions& options);

  const OuterOptions options;
  OuterModel model;
  OuterSchedule schedule{options};
  OuterLineage lineage;
  OuterFlight flight;
  std::optional<std::size_t> unblended{};  // the fragment of the last round, until the own values are blended
  OuterJournal journal;

  TimePoint now() const { return schedule.clock.now(); }
  // That of the round in flight, else of the next one.
  OuterFragment& fragment() { return model.fragments()[schedule.fragment()]; }
  void count_step(double samples);
  bool begins_round() const;
  void begin_round(double rate, const Communicator& group);
  // The next round is the same one, begun again.
  void cancel_round();
  // The end of a round whose global values are here. If a parameter's store() throws, the round has ended all the same.
  void note_and_blend(const Communicator& group);
  void blend_last();
  // The fragment's next round will have this rank's delta of both.
  void skip_round();
  // Whether a round that ended in the group of this number had this rank's delta.
  bool has_posted_in(std::uint64_t group_number) const;

  // ---- outer_saved.cc
  std::vector<std::byte> save() const;
  void load(std::span<const std::byte> saved, bool is_own, const Communicator& group);
  // Leaves the state of a rank that has not moved from the global model.
  void forget_training();
  void note_delta();
};

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
  void go_over_to(const Communicator& group);
  void advance();
  void post();
  void compare_loaded();
  void leave_calls();
  void require_equal_ranks();
  void end_round();

  // ---- membership (outer_membership.cc)
  void settle();
  // `keeps_training`: a taker's own values move as the global ones do.
  void take_over(std::size_t fragment, const OuterHandover& handover, bool keeps_training);
  void take_over_all(const OuterHandover& handover);
  void hand_over(std::span<std::byte> data, const OuterHandover& handover);
  void forget_training();
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
