// Tests of programs whose ranks are processes, under GoogleTest. A test calls run_ranks(), which runs a function once a
// rank, each in a process of its own, and makes the test fail with what any of them found:
//
//   TEST(Sum, is_over_all_ranks) {
//     qccl::testing::run_ranks({.world = 4}, [](qccl::testing::Rank& rank) {
//       qccl::Communicator comm = rank.init();
//       std::vector<int> value{rank.rank()};
//       comm.all_reduce(value);
//       EXPECT_EQ(value[0], 6);
//     });
//   }
//
// Ranks meet through the test's process: no port, no file, no address. What they print is kept, and shown for a rank
// that failed. When run_ranks() returns, or the test's process ends in whatever way, no process that it started is
// left. Needs the library qccl::testing (find_package(qccl COMPONENTS testing)) and GoogleTest; Linux only.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qccl/communicator.h"

namespace qccl::testing {

using Time = std::chrono::steady_clock::time_point;  // comparable between the processes of a host

// How the process of a rank begins.
enum class Start : std::uint8_t {
  fork,   // as a copy of the test's process: a millisecond. The test's process must have no other thread then.
  spawn,  // as the test program started anew for this one test: nothing inherited, the test's code before run_ranks()
          // runs once more in every rank
};

// How a process ended.
struct End {
  enum class Kind : std::uint8_t { exited, killed };
  Kind kind = Kind::exited;
  int code = 0;  // exit code, or number of the signal
  friend bool operator==(const End&, const End&) = default;
};
inline End exited(int code) { return {End::Kind::exited, code}; }
inline End killed(int signal) { return {End::Kind::killed, signal}; }

// The exit code of a rank in which an assertion failed or an exception went uncaught.
inline constexpr int kFailedExitCode = 10;

// Why a rank can't run its test, as an exit code. If all ranks skip for the same reason the test is skipped; if only
// some do, it fails.
enum class Skip : std::uint8_t {
  transport_unavailable = 72,
  world_too_small = 73,
  not_root = 74,
  too_few_cores = 75,
  other = 86,  // GTEST_SKIP() in a rank
};
struct SkipCode {
  Skip skip;
  const char* name;
  const char* meaning;
};
// Every reason, in the order of its codes.
std::span<const SkipCode> skip_codes();

// What happens to a rank at a point that its test names by Rank::point().
struct Fault {
  enum class Action : std::uint8_t {
    kill,  // SIGKILL; the rank is then expected to end by it
    stop,  // SIGSTOP
    cut,   // both directions of all its stream connections, TCP and unix, are shut down
  };
  Action action = Action::kill;
  int rank = 0;
  std::string point{};
  std::optional<Milliseconds> after{};    // not at the point, but so long after it, in whatever the rank then does
  std::optional<Milliseconds> lasting{};  // stop: until SIGCONT; not set: until all other ranks have ended
};

struct JobOptions {
  int world = 2;  // ranks, 1 to 1024
  Start start = Start::fork;
  // Until all ranks must have ended; then those that run are ended, with stacks and state in the failure.
  Milliseconds deadline{60'000};
  // For the other ranks, once one has ended as it should not.
  Milliseconds grace{5'000};
  TransportChoice transport = TransportChoice::automatic;  // of Rank::options()
  std::map<std::string, std::string> environment{};        // variables added in every rank
  std::vector<Fault> faults{};
  std::map<int, End> ends{};  // by rank, where something else than exited(0) is right
};

// What became of a rank.
struct RankReport {
  End end{};
  bool finished = false;                // its function returned
  std::string output{};                 // of the first MiB: standard output and error
  std::vector<std::string> failures{};  // of assertions, and an uncaught exception
  std::map<std::string, Time> points{};
  std::optional<Time> fault{};  // when its fault happened
};

struct Report {
  std::vector<RankReport> ranks{};
  bool passed = false;
  bool skipped = false;
};

// A rank as its test's function sees it. Lives as long as the process. Thread-safe.
class Rank {
 public:
  class Process;
  explicit Rank(Process& process) : process_(process) {}
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  int rank() const;
  int world() const;

  // For qccl::init(): rank, world, the test's store and transport. Operations and init fail after half of the test's
  // deadline, so that the library's own error comes before the test's.
  InitOptions options() const;
  // qccl::init() with these or with other options. The rank's report has the state of a communicator made so if it
  // hangs, for which the harness keeps a handle: close() ends it before the function does, dropping it does not.
  Communicator init();
  Communicator init(const InitOptions& options);

  // Says that this rank has come here. Returns at once, except where one of the job's faults waits for it: then when
  // that has happened, if this rank is still there.
  void point(const std::string& name);

  // Ends the rank's function; for a reason that all ranks share.
  [[noreturn]] void skip(Skip skip, const std::string& reason);
  void need_world(int ranks);
  void need_transport(TransportChoice transport);
  void need_root();
  void need_cores(int cores);

 private:
  Process& process_;
};

// Runs `body` in every rank of a new job and returns when all have ended, at most some seconds after the deadline.
// Makes the calling test fail if a rank failed an assertion, threw, was killed, ended by exit() or otherwise than the
// others, or did not end; if a fault did not happen; skipped if all ranks skip. To be called on the test's own thread.
// Under Start::spawn the program's main() must end in RUN_ALL_TESTS() as GoogleTest's does. Throws std::runtime_error
// where the system refuses processes, and std::invalid_argument for options that make no sense.
Report run_ranks(const JobOptions& options, const std::function<void(Rank&)>& body);

}  // namespace qccl::testing
