// One job: starts its ranks, listens to them, injects its faults, ends the remaining processes. The test's own thread
// does all of it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "qccl/testing.h"
#include "stacks.h"
#include "start.h"

namespace qccl::testing {

// A failed assertion of a rank.
struct FailedPart {
  bool fatal = false;
  std::string file{};  // empty: an exception
  int line = 0;
  std::string message{};
};

// The facts known about a rank, its report included.
struct RankResult {
  RankReport report{};
  std::vector<FailedPart> parts{};
  std::optional<std::pair<Skip, std::string>> skip{};
  bool began = false;
  bool left_running = false;  // did not end by itself: the job ended it
  std::string evidence{};     // stacks and state
};

class Job {
 public:
  Job(const JobOptions& options, int call, const std::function<void(Rank&)>& body);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Runs until no process is left. Call it once.
  void run();

  std::vector<RankResult>& outcomes() { return outcomes_; }
  // Why the job ended ranks; empty if it ended none.
  const std::string& why_ended() const { return why_ended_; }
  // Faults that did not happen, in words.
  std::vector<std::string> missed_faults() const;

 private:
  struct Process {
    StartedRank started{};
    std::vector<Module> modules{};
    bool running = true;
    bool stopped = false;
    std::size_t answers_due = 0;  // requested stacks and state that have not come
  };
  struct PlannedFault {
    Fault fault;
    bool waited_for = false;    // its rank waits at the point
    std::optional<Time> due{};  // when its rank has come to the point
    bool begun = false;
    bool done = false;
    std::optional<Time> resume{};
  };

  void start();
  int count_running() const;
  int count_blocking() const;
  // Waits for the next event, at most until `until`, and handles it.
  void pump(Time until);
  Time next_time() const;
  void act_on_time(Time now);

  void read_output(std::size_t rank);
  bool read_packet(std::size_t rank);
  void on_packet(std::size_t rank, const Packet& packet);
  void on_store(std::size_t rank, const Packet& packet);
  void answer_gets(const std::string& key);
  void on_point(std::size_t rank, const std::string& name, Time time);
  void on_stack(std::size_t rank, const Packet& packet);
  void take_end(std::size_t rank);

  void begin_fault(PlannedFault& planned);
  void finish_fault(PlannedFault& planned, Time time);
  void resume_stopped(std::size_t rank);
  void let_go(std::size_t rank);

  bool ended_well(std::size_t rank) const;
  void end_all(const std::string& why);
  void ask_for_evidence(std::size_t rank);

  const JobOptions& options_;
  const int call_;
  const std::function<void(Rank&)>& body_;
  Guard guard_;
  std::vector<Process> processes_;
  std::vector<RankResult> outcomes_;
  std::vector<PlannedFault> faults_;
  std::map<std::string, std::string> store_;
  struct WaitingGet {
    std::size_t rank;
    std::string request;
    std::string key;
  };
  std::vector<WaitingGet> waiting_gets_;
  Time deadline_{};
  std::optional<Time> grace_end_{};
  std::string odd_end_{};  // the unexpected end that started the grace period
  std::string why_ended_{};
};

// The end that the test expects of a rank.
End expected_end(const JobOptions& options, int rank);
// "exited with code 3", "was killed by signal 6 (Aborted)"
std::string to_text(const End& end);

}  // namespace qccl::testing
