// The state of an OuterLoop. A round of a fragment: the delta is taken and posted (begin), the average awaited `delay`
// steps later, the global values stepped and the own ones blended (end). advance() does what is due; after a failure
// it is called again in another group, and goes on where it was.
#pragma once

#include <optional>

#include "base/clock.h"
#include "train/outer_model.h"

namespace qccl::train {

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
  std::uint64_t rounds_in_agreement = 0;  // the last ones, which all ranks began in finish()

  void begin_anew();
  void wait_for_next();
  bool is_begin_due(std::uint64_t at_step) const;
  bool is_end_due() const { return is_finishing || steps >= begun_at + options.delay; }
  std::size_t fragment() const { return rounds % options.fragments; }
};

// The round in flight: what is sent, received and owed.
struct OuterFlight {
  bool is_begun = false, is_posted = false;
  // No rank had trained the fragment of the last round: it changed neither the global model nor residuals.
  bool was_idle = false;
  double weight = 1;  // of this rank's delta; 0 if it has not trained
  std::vector<float> sent, received;
  std::vector<double> control;  // summed over the ranks: weight, ranks in finish()
  ErrorFeedback feedback;
  std::vector<Work> works;

  // Until the calls have ended, even with an error: the first one is thrown, and the round is to be posted again.
  void wait();
};

// What rounds cost, for OuterLoop::history().
struct OuterJournal {
  std::uint64_t bytes_before = 0;
  Nanoseconds waited{};
  TimePoint last_end{};
  std::vector<OuterRound> rounds;

  void begin(const Communicator& group);
  void add(OuterRound round, const Communicator& group);
  // Completes the last round, and adds it to the log.
  void end(TimePoint now, const Communicator& group);
};

class OuterLoop::State {
 public:
  State(Communicator group, std::vector<OuterParameter> parameters, const OuterOptions& options);
  ~State();

  // Does what is due, and with OuterOptions::go_on goes on after losses.
  void drive();
  void count_step(double samples);
  void begin_finish() { schedule_.is_finishing = true; }
  void regroup(Communicator group);

  const Communicator& group() const { return group_; }
  const OuterModel& model() const { return model_; }
  const OuterSchedule& schedule() const { return schedule_; }
  const std::vector<OuterRound>& history() const { return journal_.rounds; }

  std::vector<std::byte> save() const;
  void load(std::span<const std::byte> saved, bool is_own);

 private:
  void advance();
  void begin_round();
  void post();
  void wait();
  void leave_calls();
  void end_round();
  void note_and_blend();

  // ---- membership (outer_membership.cc)
  void settle();
  void take_over(std::size_t fragment, int source, bool is_taking);
  void take_over_all(int source, bool is_taking);
  void end_missed_round();

  Communicator group_;
  const OuterOptions options_;
  OuterModel model_;
  OuterSchedule schedule_{options_};
  OuterFlight flight_;
  OuterJournal journal_;
  bool lacks_state_ = true;  // the global model is still to be taken over
};

}  // namespace qccl::train
