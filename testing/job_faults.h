// The ranks of a job as the test's process sees them, and the faults that it injects into them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
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

struct JobRank {
  StartedRank started{};
  std::vector<Module> modules{};
  bool running = true;
  bool stopped = false;
  std::size_t answers_due = 0;  // requested stacks and state that have not come

  RankReport report{};
  std::vector<FailedPart> parts{};
  std::optional<std::pair<Skip, std::string>> skip{};
  bool began = false;
  bool left_running = false;  // did not end by itself: the job ended it
  std::string evidence{};     // stacks and state

  bool is_blocking() const { return running && !stopped; }
  void send(PacketKind kind, std::initializer_list<std::string_view> fields = {}) const {
    send_packet(started.channel.get(), kind, fields);
  }
  // Lets a stopped rank run again.
  void resume();
};

class FaultInjector {
 public:
  // `ranks` outlives the object.
  FaultInjector(const std::vector<Fault>& faults, std::vector<JobRank>& ranks);

  // The rank has reached the point and waits there. Injects the faults that are due at once, and lets the rank go on
  // unless one of them kills it or cuts its connections first.
  void on_point(std::size_t rank, const std::string& name, Time time);
  // The rank has shut down so many connections for a fault.
  void on_cut(std::size_t rank, long connections, Time time);
  // When act() has something to do; Time::max() if never.
  Time next_time() const;
  void act(Time now);
  // The faults that did not happen, in words.
  std::vector<std::string> missed() const;

 private:
  struct PlannedFault {
    Fault fault;
    bool waited_for = false;    // its rank waits at the point
    std::optional<Time> due{};  // set when its rank has reached the point
    bool begun = false;
    bool done = false;
    std::optional<Time> resume{};
  };
  JobRank& rank_of(const PlannedFault& planned) const { return ranks_[static_cast<std::size_t>(planned.fault.rank)]; }
  void begin(PlannedFault& planned);
  void finish(PlannedFault& planned, Time time);

  std::vector<JobRank>& ranks_;
  std::vector<PlannedFault> faults_;
};

}  // namespace qccl::testing
