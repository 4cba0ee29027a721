// The dialling side of the mesh: connects to all lower ranks at once and retries until stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bootstrap/mesh/handshake.h"
#include "os/net/poller.h"

namespace qccl::bootstrap {

// A rank to connect to. If it has a unix name, that is tried first.
struct DialTarget {
  int rank = -1;
  std::string unix_name{};               // empty: none
  bool local_only = false;               // only the unix socket
  std::vector<std::string> addresses{};  // TCP, in this order
  std::uint16_t port = 0;
};

class Dialler {
 public:
  // An address that does not answer gives way to the next. One that refuses for all of kRefusedLimit belongs to a
  // process that has ended (it listened before this rank learned of it).
  static constexpr Nanoseconds kConnectLimit = std::chrono::seconds(3);
  static constexpr Nanoseconds kHandshakeLimit = std::chrono::seconds(10);
  static constexpr Nanoseconds kRefusedLimit = std::chrono::seconds(3);

  // `own` describes this rank; its target is filled in. `poller` and `clock` outlive this.
  Dialler(os::Poller& poller, const Clock& clock, const wire::Hello& own) : poller_(poller), clock_(clock), own_(own) {}

  void add(DialTarget target);
  // The descriptor of this rank has an event.
  Status ready(int rank, bool writable);
  // Does everything due. PeerLost names a rank that has ended or cannot be reached, Misuse one whose unix socket
  // belongs to another user.
  Status turn();
  // When turn() has something to do.
  TimePoint next_turn() const;
  // Connections whose handshake is complete; if a unix socket is in use, both of them.
  std::vector<PeerSocket> take_peers() { return std::exchange(peers_, {}); }
  // Ranks not yet connected, with the last reason: "rank 1 at 10.0.0.1:4000: Connection refused".
  std::vector<std::string> reasons() const;

 private:
  // Neither connecting nor shaking hands, it rests until the next attempt.
  struct Dial {
    DialTarget target;
    SocketKind kind = SocketKind::tcp;     // of this attempt
    os::Fd connecting{};                   // a TCP connection without an answer yet
    std::optional<Handshake> handshake{};  // on the connection after that
    TimePoint due{};                       // resting: the next attempt; else the end of this attempt
    Nanoseconds delay{};
    std::size_t address = 0;          // index in target.addresses of the one to try
    bool other_than_refused = false;  // in this round of the addresses
    std::optional<TimePoint> refused_since{};
    ConfirmByte confirm = ConfirmByte::alone;
    std::string reason{};
  };

  Status begin(Dial& dial);
  Status begin_tcp(Dial& dial);
  Status shake_hands(Dial& dial, os::Fd socket);
  Status advance(Dial& dial);
  Status attempt_failed(Dial& dial, const std::string& reason, bool refused);
  Status end_of_round(Dial& dial);
  static Failure gone(const Dial& dial);
  static Failure of_another_user(const Dial& dial, const ErrorInfo& cause);

  os::Poller& poller_;
  const Clock& clock_;
  wire::Hello own_;
  std::map<int, Dial> dials_;  // not yet connected, by rank
  std::vector<PeerSocket> peers_;
};

}  // namespace qccl::bootstrap
