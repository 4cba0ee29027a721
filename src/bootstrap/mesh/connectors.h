// The two sides that connect the mesh.
//
// The Acceptor accepts connections from any process and keeps those of higher ranks of this job. The handshakes of all
// connections proceed concurrently. A stranger costs one descriptor until it sends something wrong, its time is up, or
// so many have come that it is the oldest of the network with the most. A unix socket connection of another user is
// closed before anything is read from it. The Dialler connects to all lower ranks at once and retries until stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bootstrap/mesh/address_card.h"
#include "bootstrap/mesh/handshake.h"
#include "bootstrap/store/strangers.h"
#include "os/net/poller.h"

namespace qccl::bootstrap {

class Acceptor {
 public:
  // Maximum; also at most a quarter of the descriptors that the process could still open at start().
  static constexpr std::size_t kMaxPending = 512;
  static constexpr Nanoseconds kHandshakeLimit = std::chrono::seconds(10);

  // Both must outlive this.
  Acceptor(os::Poller& poller, const Clock& clock) : poller_(poller), clock_(clock) {}

  // `own` describes this rank; its target is filled in. `secrets` outlive this; null: the job has no key.
  Status start(Listeners listeners, const wire::Hello& own, const ConnectionPolicy& policy,
               const PairSecrets* secrets = nullptr);

  // The descriptor with this index has an event. ResourceExhausted if no descriptor is left to accept with.
  Status ready(std::uint64_t index);
  // Drops connections whose time is up.
  void expire();
  // When expire() has something to do.
  TimePoint next_turn() const { return strangers_.next_deadline(); }
  // Connections whose handshake is complete.
  std::vector<PeerSocket> take_peers() { return std::exchange(peers_, {}); }

 private:
  Status accept_waiting(const os::Fd& listener, SocketKind kind);
  void welcome(os::Fd socket, SocketKind kind);
  bool is_of_this_user(const os::Fd& socket);
  void serve(std::uint64_t id);
  void drop(std::uint64_t id);
  void refused(const os::Fd& socket, const ErrorInfo& why);

  os::Poller& poller_;
  const Clock& clock_;
  Listeners listeners_;
  wire::Hello own_;
  ConnectionPolicy policy_;
  const PairSecrets* secrets_ = nullptr;
  std::map<std::uint64_t, Handshake> pending_;
  Strangers strangers_{kHandshakeLimit};  // all of pending_
  std::uint64_t next_id_;
  std::size_t max_pending_ = kMaxPending;
  bool warned_of_user_ = false;
  std::set<std::string> refusals_;  // for their keys, that were logged as warnings
  std::vector<PeerSocket> peers_;
};

// A rank to connect to. If it has a unix name, that is tried first.
struct DialTarget {
  int rank = -1;
  std::string unix_name{};               // empty: none
  bool local_only = false;               // only the unix socket
  std::vector<std::string> addresses{};  // TCP, in this order
  std::uint16_t port = 0;
  std::uint16_t index = 0;  // of the TCP connection...
  std::uint16_t count = 1;  // ...among so many
};

class Dialler {
 public:
  // An address that does not answer gives way to the next. One that refuses for all of kRefusedLimit belongs to a
  // process that has ended (it listened before this rank learned of it).
  static constexpr Nanoseconds kConnectLimit = std::chrono::seconds(3);
  static constexpr Nanoseconds kHandshakeLimit = std::chrono::seconds(10);
  static constexpr Nanoseconds kRefusedLimit = std::chrono::seconds(3);

  // `own` describes this rank; its target is filled in. `poller`, `clock` and `secrets` outlive this; without secrets
  // the job has no key.
  Dialler(os::Poller& poller, const Clock& clock, const wire::Hello& own, const ConnectionPolicy& policy,
          const PairSecrets* secrets = nullptr)
      : poller_(poller), clock_(clock), own_(own), policy_(policy), secrets_(secrets) {}

  void add(DialTarget target);
  // The descriptor with this index has an event.
  Status ready(std::uint64_t index, bool writable);
  // Does everything due. PeerLost names a rank that has ended or cannot be reached, Misuse one whose unix socket
  // belongs to another user.
  Status turn();
  // When turn() has something to do.
  TimePoint next_turn() const;
  // Connections whose handshake is complete; if a unix socket is in use, both of them; if there are several TCP
  // connections, each.
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
  void dial_others(const Dial& first, std::uint16_t count);
  Status attempt_failed(Dial& dial, const std::string& reason, bool refused);
  Status end_of_round(Dial& dial);
  static Failure gone(const Dial& dial);
  static Failure of_another_user(const Dial& dial, const ErrorInfo& cause);

  os::Poller& poller_;
  const Clock& clock_;
  wire::Hello own_;
  ConnectionPolicy policy_;
  const PairSecrets* secrets_;
  std::map<std::uint64_t, Dial> dials_;  // not yet connected, by the index of their descriptors
  std::vector<PeerSocket> peers_;
};

}  // namespace qccl::bootstrap
