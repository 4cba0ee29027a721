// Tests of programs whose ranks are processes, under GoogleTest. A test calls run_ranks(), which runs a function in one
// process per rank and fails the test if any of them failed:
//   TEST(Sum, is_over_all_ranks) {
//     qccl::testing::run_ranks({.world = 4}, [](qccl::testing::Rank& rank) {
//       qccl::Communicator comm = rank.init();
//       std::vector<int> value{rank.rank()};
//       comm.all_reduce(value);
//       EXPECT_EQ(value[0], 6);
//     });
//   }
//
// Ranks meet through the test's process: no port, no file, no address. Their output is kept, and printed for a rank
// that failed. When run_ranks() returns, or the test's process ends in any way, none of the processes it started is
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

// How a rank's process starts.
enum class Start : std::uint8_t {
  fork,   // a copy of the test's process: takes a millisecond. The test's process must have no other thread then.
  spawn,  // the test program started anew for this one test: it inherits nothing, and every rank runs the test's code
          // before run_ranks() again
};

// How a process ended.
struct End {
  // By itself, or by a signal.
  enum class Kind : std::uint8_t { exited, killed };
  Kind kind = Kind::exited;  // by itself, or by a signal
  int code = 0;              // exit code, or signal number
  friend bool operator==(const End&, const End&) = default;
};
// The two ends, for JobOptions::ends and for comparison.
inline End exited(int code) { return {End::Kind::exited, code}; }
inline End killed(int signal) { return {End::Kind::killed, signal}; }

// The exit code of a rank in which an assertion failed or an exception went uncaught.
inline constexpr int kFailedExitCode = 10;

// Why a rank cannot run its test, as an exit code. The test is skipped if all ranks skip for the same reason, and fails
// if only some do.
enum class Skip : std::uint8_t {
  transport_unavailable = 72,
  world_too_small = 73,
  not_root = 74,
  too_few_cores = 75,
  other = 86,  // GTEST_SKIP() in a rank
};
// A reason to skip, as reports show it.
struct SkipCode {
  Skip skip;            // the exit code
  const char* name;     // "not_root", ...
  const char* meaning;  // for people
};
// Every reason, ordered by code.
std::span<const SkipCode> skip_codes();

// A fault injected into a rank at a point that its test names by Rank::point().
struct Fault {
  // What happens to the rank.
  enum class Action : std::uint8_t {
    kill,  // SIGKILL; the rank is then expected to end by it
    stop,  // SIGSTOP
    cut,   // both directions of all its stream connections, TCP and unix, are shut down
  };
  Action action = Action::kill;           // what happens
  int rank = 0;                           // which it happens to
  std::string point{};                    // where, as its Rank::point() names it
  std::optional<Milliseconds> after{};    // delay after the point; the fault then hits whatever the rank is doing
  std::optional<Milliseconds> lasting{};  // stop: until SIGCONT; unset: until all other ranks have ended
};

// Settings of run_ranks().
struct JobOptions {
  int world = 2;              // ranks, 1 to 1024
  Start start = Start::fork;  // how processes begin
  // All ranks must end within this time; ranks still running are then killed, and the failure has their stacks and
  // state.
  Milliseconds deadline{60'000};
  // Time for the other ranks to end once one rank has ended unexpectedly.
  Milliseconds grace{5'000};
  TransportChoice transport = TransportChoice::automatic;  // of Rank::options()
  std::map<std::string, std::string> environment{};        // added in every rank, beside RANK, WORLD_SIZE, ...
  std::vector<Fault> faults{};                             // each must happen
  std::map<int, End> ends{};                               // by rank, where an end other than exited(0) is expected
};

// The outcome of a rank.
struct RankReport {
  End end{};                             // how its process ended
  bool finished = false;                 // its function returned
  std::string output{};                  // the first MiB of standard output and error
  std::vector<std::string> failures{};   // failed assertions, and an uncaught exception
  std::map<std::string, Time> points{};  // when it reached them
  std::optional<Time> fault{};           // when the rank's fault happened
};

// The outcome of a job.
struct Report {
  std::vector<RankReport> ranks{};  // by rank
  bool passed = false;              // every rank did what was expected of it
  bool skipped = false;             // every rank skipped, for the same reason
};

// A rank as seen by its test's function. Lives as long as the process. Thread-safe.
class Rank {
 public:
  class Process;
  explicit Rank(Process& process) : process_(process) {}
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Its number, from 0; the number of ranks.
  int rank() const;
  int world() const;

  // Options for qccl::init(): rank, world, the test's store and transport. Operations and init() fail after half of the
  // test's deadline, so that the library's own error comes before the test's.
  InitOptions options() const;
  // qccl::init() with these or with other options. The harness keeps a handle of the communicator, so that the report
  // of a rank that hangs has its state. Hence close() ends the communicator before the function returns; dropping it
  // does not.
  Communicator init();
  Communicator init(const InitOptions& options);

  // Marks that this rank has reached the point. Returns at once, unless one of the job's faults is planned for this
  // point without delay: then it returns after the fault, if the rank survives it.
  void point(const std::string& name);

  // Ends the rank's function, for a reason that all ranks share. The need functions skip if the rank lacks what they
  // name.
  [[noreturn]] void skip(Skip skip, const std::string& reason);
  void need_world(int ranks);
  void need_transport(TransportChoice transport);
  void need_root();
  void need_cores(int cores);

 private:
  Process& process_;
};

// Runs `body` in every rank of a new job and returns when all have ended, at most some seconds after the deadline. The
// calling test fails if a rank failed an assertion, threw, was killed, called exit(), ended unlike the others or did
// not end, or if a fault did not happen; it is skipped if all ranks skip. Must be called on the test's own thread.
// Under Start::spawn the program's main() must end in RUN_ALL_TESTS(), as GoogleTest's does. Throws std::runtime_error
// if the system refuses processes, and std::invalid_argument for invalid options.
Report run_ranks(const JobOptions& options, const std::function<void(Rank&)>& body);

}  // namespace qccl::testing
