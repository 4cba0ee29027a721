// The driver of the chaos test: starts ranks as processes, kills and stops them, starts new ones in their place, and
// reads what they say (rank.h). The victims, the faults and their times are drawn from a seed. What a rank is doing
// when its fault comes depends on the machine.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "os/fd.h"
#include "os/memory.h"
#include "qccl/communicator.h"
#include "support/elements.h"

namespace qccl::testing {

using Time = std::chrono::steady_clock::time_point;

struct ChaosOptions {
  std::uint64_t seed = 1;
  std::chrono::milliseconds duration{};
  TransportChoice transport = TransportChoice::automatic;
  std::string key{};
};

struct ChaosCounts {
  int kills = 0;  // those of stopped processes too
  int stops = 0;
  int joins = 0;     // of newcomers that became members
  int left_out = 0;  // that lived
  std::uint64_t steps = 0;
  std::vector<double> retry_ms;  // from each kill to the last survivor's result, ascending
};

struct ChaosProcess {
  pid_t pid = -1;
  std::uint64_t id = 0;
  os::Fd channel{};  // what it says; none once it has ended
  std::string unread{};
  std::string door{};
  bool is_member = false;
  bool ends_well = false;  // it has said so
  std::optional<Time> stopped_until{};
  bool dies_stopped = false;
  Time last_news{};
  std::map<std::uint64_t, std::string> results{};  // by step
};

struct NextInjury {
  bool stops = false;
  bool hits_newcomer = false;  // that is no member yet
};

class Chaos {
 public:
  explicit Chaos(const ChaosOptions& options);
  // Kills all that is left.
  ~Chaos();
  Chaos(const Chaos&) = delete;
  Chaos& operator=(const Chaos&) = delete;

  // Returns what went wrong, or "". Call it once.
  std::string run();
  const ChaosCounts& counts() const { return counts_; }

 private:
  static constexpr int kRanks = 6;

  void start_process();
  void pump(Time until);
  void read(ChaosProcess& process);
  void on_line(ChaosProcess& process, const std::string& line);
  void take_end(ChaosProcess& process);

  // Kills or stops a process, if so many are well that the others can go on.
  bool injure();
  void end_stops(Time now);
  void kill(ChaosProcess& process);
  void go_on(ChaosProcess& process);
  void find_hanging();

  void end();

  const ChaosOptions options_;
  Random random_;
  os::Mapping shared_;  // one flag
  std::atomic<bool>* is_over_;
  std::vector<ChaosProcess> processes_;
  std::uint64_t next_id_ = 1;
  NextInjury next_;
  std::map<std::uint64_t, Time> killed_;
  std::map<std::uint64_t, Time> retried_;
  std::vector<std::map<std::uint64_t, std::string>> results_of_survivors_;
  ChaosCounts counts_;
  std::string problem_;
};

}  // namespace qccl::testing
