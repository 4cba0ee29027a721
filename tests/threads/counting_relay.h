// A relay between one rank and what it connects to, which counts how often the rank waits for an answer: over a long
// line each of these is a round trip. Counts depend on the order of bytes, not on time.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include "os/fd.h"
#include "os/net/poller.h"

namespace qccl::testing {

class CountingRelay {
 public:
  // What the rank gets for bytes that come for it. Called in the relay's thread.
  using Rewrite = std::function<std::string(std::string_view)>;

  // Relays connections to 127.0.0.1, port `target`.
  explicit CountingRelay(std::uint16_t target, Rewrite rewrite = nullptr);
  ~CountingRelay();

  std::uint16_t port() const { return port_; }
  // One for each connection, and one for each time that the rank has sent something and an answer begins.
  int round_trips() const { return round_trips_; }

 private:
  struct Link {
    os::Fd to_rank;
    os::Fd to_target;
    bool rank_awaits_answer = false;
  };

  void run();
  void accept();
  void forward_from_rank(Link& link);
  void forward_to_rank(Link& link);

  const std::uint16_t target_;
  const Rewrite rewrite_;
  os::Fd listener_;
  std::uint16_t port_;
  os::Poller poller_;
  std::map<std::uint64_t, Link> links_;  // by the token of to_rank; to_target has the next one
  std::uint64_t next_token_ = 1;
  std::atomic<int> round_trips_{0};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace qccl::testing
