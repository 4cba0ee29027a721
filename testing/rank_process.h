// The part of the harness that runs in a rank's process: it runs the test's function and ends the process.
//
// A separate thread, which blocks all signals, reads the packets of the test's process, so that a rank that hangs can
// still report its state.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "packet.h"
#include "qccl/store.h"
#include "qccl/testing.h"

namespace qccl::testing {

class Rank::Process {
 public:
  Process(int rank, const JobOptions& options, Fd channel);

  // Runs the function, then ends the process with 0, kFailedExitCode or the code of a skip.
  [[noreturn]] void run(const std::function<void(Rank&)>& body);

  int rank() const { return rank_; }
  const JobOptions& options() const { return options_; }
  std::shared_ptr<Store> store();
  void watch(const Communicator& comm);
  void point(const std::string& name);
  void report_failure(bool fatal, const char* file, int line, const std::string& message);
  void report_skip(Skip skip, const std::string& reason);

  // Sends a request under a unique number and waits for its value; returns nothing if the timeout passes first.
  std::optional<std::string> ask(PacketKind kind, const std::string& key, const std::string& more,
                                 std::chrono::milliseconds timeout);
  void tell(PacketKind kind, std::initializer_list<std::string_view> fields) {
    send_packet(channel_.get(), kind, fields);
  }

 private:
  void wait_for_go();
  int end_code();
  void listen();
  void on_packet(const Packet& packet);
  void cut_connections();
  void describe();

  const int rank_;
  const JobOptions options_;
  const Fd channel_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int gos_ = 0;                         // received and not yet taken
  long requests_ = 0;                   // made so far
  std::map<long, std::string> values_;  // received values, by request
  std::vector<Communicator> watched_;
  bool failed_ = false;
  std::optional<Skip> skip_;
};

// The name of the thread that reads. It is not part of a hang.
inline constexpr const char* kListenerName = "qccl-testing";

// Thrown by Rank::skip() to leave the test's function.
struct SkipRank {};

}  // namespace qccl::testing
