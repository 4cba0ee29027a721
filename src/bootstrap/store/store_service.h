// What the store that rank 0 serves consists of: its contents, its clients' connections and which of them are strangers
// (tcp_store_server.h), and the answers to their requests (store_protocol.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bootstrap/store/store_protocol.h"
#include "bootstrap/store/store_rules.h"
#include "bootstrap/store/store_secrets.h"
#include "bootstrap/store/strangers.h"
#include "os/fd.h"
#include "secure/stream.h"

namespace qccl::bootstrap {

// Keys and values, and the waiters for keys that do not exist yet. No sockets and no threads here.
class StoreState {
 public:
  using Waiter = std::uint64_t;
  // Null: none. A connection that is still sending a value keeps it when it is overwritten.
  using Value = std::shared_ptr<const std::string>;

  static constexpr std::size_t kMaxBytes = 64 * 1024 * 1024;

  // `limit`: of all keys and values together, including the overhead of storing them.
  explicit StoreState(std::size_t limit = kMaxBytes) : limit_(limit) {}

  // ResourceExhausted when full. The state is then unchanged, as it is after std::bad_alloc.
  Status set(const std::string& key, std::string value);
  Value get(const std::string& key) const;
  bool has(const std::string& key) const { return values_.contains(key); }
  // The new sum. CorruptData if the value is no decimal number or the sum leaves 64 bits.
  Result<std::int64_t> add(const std::string& key, std::int64_t delta);
  bool has_all(const std::vector<std::string>& keys) const;
  // Forgets all keys that begin with `prefix`. Allocates nothing.
  void erase(std::string_view prefix);

  // Records that `waiter` waits for `keys`, in place of its earlier wait. False, and nothing recorded, if all exist.
  bool wait(Waiter waiter, const std::vector<std::string>& keys);
  // Forgets the waiter, even if std::bad_alloc interrupted its wait(). Allocates nothing.
  void cancel(Waiter waiter);
  // A waiter whose keys all exist by now, until cancel().
  std::optional<Waiter> any_released() const;
  bool is_waiting(Waiter waiter) const { return lacking_.contains(waiter); }
  // A waiter that still lacks a key.
  std::optional<Waiter> any_waiting() const;

 private:
  void release_waiters_of(const std::string& key);  // allocates nothing

  const std::size_t limit_;
  std::map<std::string, Value, std::less<>> values_;
  std::size_t bytes_ = 0;
  std::map<Waiter, std::set<std::string>> lacking_;     // keys each waiter still lacks
  std::map<std::string, std::set<Waiter>> waiters_of_;  // the same, by key
  std::vector<Waiter> released_;                        // has room for all of them
};

// Answers not yet taken by a client. They share values with the store: each exists once, however many clients are slow.
class AnswerQueue {
 public:
  void add(std::shared_ptr<const std::string> bytes);
  void add(std::string bytes) { add(std::make_shared<const std::string>(std::move(bytes))); }
  bool empty() const { return pieces_.empty(); }
  // Sends as much as the socket takes now. False if the connection is lost.
  bool send(secure::Stream& stream);

 private:
  std::deque<std::shared_ptr<const std::string>> pieces_;
  std::size_t sent_ = 0;  // bytes of the first piece
};

struct StoreClient {
  using Id = std::uint64_t;  // grows with every connection
  // own: rank 0's connection. member: has shown the job's key, or, in a job without one, stored something for it that
  // the rules take for a proof.
  enum class Standing : std::uint8_t { stranger, member, own };

  Id id = 0;
  secure::Stream stream;
  std::string address;  // "" on a unix socket
  Standing standing = Standing::stranger;
  bool needs_key = false;      // TLS's handshake comes first
  bool is_introduced = false;  // has sent the protocol's first request
  std::string received;        // and not yet answered
  std::string awaited;         // the key of its await; empty while it waits for keys alone
  StoreRequest will{};         // its keys that do not exist are set when the connection ends
  AnswerQueue answers;
};

// Reads the clients' requests, checks them against the rules and answers them from the contents.
class StoreService {
 public:
  // Without `rules` every client may write every key, repeatedly. All of them outlive this.
  StoreService(Strangers& strangers, StoreState& state, StoreRules* rules, const StoreSecrets& secrets)
      : strangers_(strangers), state_(state), rules_(rules), secrets_(secrets) {}

  // Sends, reads and answers as much as possible now; reads nothing while an answer waits to be taken. False if the
  // connection is lost or the client broke the protocol. A wait without an answer is recorded in the state, by client.
  bool serve(StoreClient& client);

  // Answers a wait or await that the state has recorded: kReady or kServerEnds. False if the awaited key was erased
  // since.
  bool answer_wait(StoreClient& client, std::uint8_t answer);

  // Does what the client's will says if its connection has ended, as far as there is memory and room for it.
  void execute_will(StoreClient& client);

  // From here on, keys that do not exist yet will not come: waits for them end at once.
  void refuse_waits() { refuses_waits_ = true; }

 private:
  static constexpr std::size_t kReadBytes = 64 * 1024;
  static constexpr std::size_t kMostRefusals = 8;  // that are told

  bool is_limited(const StoreClient& client) const { return rules_ && client.standing != StoreClient::Standing::own; }
  void make_member(StoreClient& client);
  Result<bool> authenticate(StoreClient& client);
  void refuse(StoreClient& client, const ErrorInfo& why);
  bool read(StoreClient& client);
  bool answer_requests(StoreClient& client);
  bool answer(StoreClient& client, StoreRequest& request);
  bool set(StoreClient& client, StoreRequest& request);
  bool keep_will(StoreClient& client, StoreRequest& request);
  bool add(StoreClient& client, const StoreRequest& request);
  void wait(StoreClient& client, StoreRequest& request);

  Strangers& strangers_;
  StoreState& state_;
  StoreRules* const rules_;
  const StoreSecrets& secrets_;
  bool refuses_waits_ = false;
  std::set<std::string> refusals_;  // for their keys: "10.0.0.1: it has no key"
  std::array<std::byte, kReadBytes> buffer_;
};

}  // namespace qccl::bootstrap
