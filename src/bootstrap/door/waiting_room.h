// The newcomers at a door, each a state machine that its connection and the member drive, and the rules of the door's
// store (protocol/keys.h).
//
//   waits -> called -> here -> seated -> in
//     ^                  |        |
//     +------------------+--------+   not this time, or the meeting failed: round C + 1
//
// A client that reaches the door without being a newcomer costs little and not for long. A connection takes one ticket,
// reads only that ticket's keys, and writes them in the rounds in which it was called. A newcomer that answers the call
// of a round has read the rounds before: their keys go then, and all of a ticket's when its connection ends. Without a
// key holders of tickets count as strangers (tcp_store_server.h), so that their number is limited.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "bootstrap/protocol/key_rules.h"

namespace qccl::bootstrap {

// Thread-safe. What the member tells newcomers is in the store after the server's next turn: wake it.
class WaitingRoom final : public KeyRules {
 public:
  // A newcomer that has answered.
  struct Answer {
    std::int64_t ticket = 0;
    std::string record;  // encoded: how to reach it
  };

  explicit WaitingRoom(const std::string& job);

  // ---- for the member

  // Calls those that wait, but not those that have not answered the call before.
  void call();
  // Those that have answered, in the order of arrival, once all that were called now have, or have ended: at most until
  // the deadline.
  std::vector<Answer> await_answers(TimePoint deadline);
  // The three that follow do nothing for a newcomer that has ended, and allocate nothing but the seat's copy.
  void seat(std::int64_t ticket, std::string seat);
  void admit(std::int64_t ticket);
  // Tells one that is not a member to wait for the next round.
  void send_back(std::int64_t ticket);
  // Whether the newcomer's connection has not ended.
  bool has(std::int64_t ticket) const;
  // Until a newcomer waits that was never called, at most until the deadline.
  void await_uncalled(TimePoint deadline) const;

  // ---- StoreRules

  // More than the seats of all newcomers that can wait take; what newcomers write themselves is small.
  std::size_t most_bytes() const override { return std::size_t{512} * 1024 * 1024; }
  bool may_read(Client client, std::string_view key) const override;
  void has_added(Client client, std::string_view key, std::int64_t sum) override;
  void has_set(Client client, std::string_view key, StoreState& state) override;
  void has_ended(Client client, StoreState& state) override;
  void take_turn(StoreState& state) override;
  bool trusts_writers() const override { return false; }
  bool may_stay(Client client) const override;

 private:
  enum class Stage : std::uint8_t { waits, called, here, seated, in };
  // What the member has written and the server has not put into the store yet.
  struct Note {
    Pattern pattern;
    int round;
    std::string value;
  };
  struct Guest {
    std::string prefix;  // of its keys
    Stage stage = Stage::waits;
    int round = 1;
    bool is_awaited = false;  // the last call() has called it
    std::vector<Note> notes{};
    std::string record{};  // its last answer
  };

  std::optional<ParsedKey> parse(std::string_view key) const override;
  bool is_time(Client client, const ParsedKey& key) const override;
  Guest* find(std::int64_t ticket);
  void note(Guest& guest, Pattern pattern, std::string value);
  template <class Done>
  void await(TimePoint deadline, const Done& done) const;

  const std::string prefix_;
  const SteadyClock clock_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable changed_;
  std::map<std::int64_t, Guest> guests_;    // by ticket
  std::map<Client, std::int64_t> tickets_;  // of connections
};

}  // namespace qccl::bootstrap
