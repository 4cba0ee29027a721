// The rules of a door's store (door.h has its keys), and the newcomers that wait there.
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
#include "bootstrap/store/store_rules.h"

namespace qccl::bootstrap {

// Thread-safe.
class WaitingRoom final : public StoreRules {
 public:
  // More than the keys of all newcomers that can wait take.
  static constexpr std::size_t kMostBytes = 16 * 1024 * 1024;

  // `most_bytes`: of the store.
  explicit WaitingRoom(const std::string& job, std::size_t most_bytes = kMostBytes);

  // ---- for the member

  // Tickets of the newcomers that wait, in the order of their arrival.
  std::vector<std::int64_t> tickets() const;
  // Whether the newcomer's connection has not ended.
  bool has(std::int64_t ticket) const;
  // The newcomer may answer this round.
  void call(std::int64_t ticket, int round);
  // Whether it has answered the round in which it was called last.
  bool has_answered(std::int64_t ticket) const;
  // Until each of the newcomers has answered or ended, at most until the deadline.
  void await_answers(const std::vector<std::int64_t>& tickets, TimePoint deadline) const;
  // Until a newcomer waits that was never called, at most until the deadline.
  void await_uncalled(TimePoint deadline) const;

  // ---- StoreRules

  std::size_t most_bytes() const override { return most_bytes_; }
  bool may_read(Client client, std::string_view key) const override;
  bool may_add(Client client, std::string_view key, std::int64_t delta) const override;
  bool may_set(Client client, std::string_view key, std::string_view value) const override;
  bool may_leave(std::string_view /*key*/, std::string_view /*value*/) const override { return false; }
  bool is_of_use(std::string_view key) const override;
  void has_added(Client client, std::string_view key, std::int64_t sum) override;
  void has_set(Client client, std::string_view key, StoreState& state) override;
  void has_ended(Client client, StoreState& state) override;
  bool trusts_writers() const override { return false; }
  bool may_stay(Client client) const override;

 private:
  struct Guest {
    std::string prefix;  // of its keys
    bool waits = false;  // it has said so
    int called = 0;      // the newest round of both
    int answered = 0;
  };

  std::string key_of(const Guest& guest, int round, std::string_view name) const;
  const Guest* find(Client client) const;  // needs mutex_
  template <class Done>
  void await(TimePoint deadline, const Done& done) const;

  const std::string prefix_;
  const SteadyClock clock_;
  const std::size_t most_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable changed_;
  std::map<std::int64_t, Guest> guests_;    // by ticket
  std::map<Client, std::int64_t> tickets_;  // of connections
};

}  // namespace qccl::bootstrap
