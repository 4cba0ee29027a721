// One job: starts its ranks, listens to them, injects its faults, ends the remaining processes. The test's own thread
// does all of it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "job_faults.h"
#include "qccl/testing.h"
#include "start.h"

namespace qccl::testing {

// The store through which the ranks meet.
class JobStore {
 public:
  // A set, get or add. The value goes to the rank that asks, for a get once the key exists. `rank` outlives the object.
  void on_packet(const JobRank& rank, const Packet& packet);

 private:
  struct WaitingGet {
    const JobRank* rank;
    std::string request;
    std::string key;
  };
  void set(const std::string& key, const std::string& value);

  std::map<std::string, std::string> values_;
  std::vector<WaitingGet> waiting_;
};

class Job {
 public:
  // Throws std::invalid_argument for invalid options.
  Job(const JobOptions& options, int call, const std::function<void(Rank&)>& body);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Runs until no process is left. Call it once.
  void run();

  std::vector<JobRank>& ranks() { return ranks_; }
  // Why the job ended ranks; empty if it ended none.
  const std::string& why_ended() const { return why_ended_; }
  std::vector<std::string> missed_faults() const { return faults_.missed(); }

 private:
  void start();
  bool is_running() const;
  // Waits for the next event, at most until `until`, and handles it.
  void pump(Time until);
  void act_on_time(Time now);

  bool read_packet(std::size_t rank);
  void on_packet(std::size_t rank, const Packet& packet);
  void take_end(std::size_t rank);
  void end_all(const std::string& why);

  const JobOptions& options_;
  const int call_;
  const std::function<void(Rank&)>& body_;
  Guard guard_;
  std::vector<JobRank> ranks_;
  FaultInjector faults_;
  JobStore store_;
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
