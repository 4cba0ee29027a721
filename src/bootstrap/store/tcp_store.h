// Client of a TCPStore: rank 0's (tcp_store_server.h), torchrun's, or any other of torch's.
//
// Connects on first use, and again after the connection was lost, until its deadline, because the server may start
// later than this rank. A store that stops in good order may come back (a job that restarts on the same port), so the
// client waits for it. If it just vanishes and this rank has left something there, the client retries only briefly.
//
// A rank far from rank 0's store meets the others in three round trips: the connection; introduction and counters();
// claim(). torch's stores take two more, because they know no await and let a second process overwrite a card.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/store/pipelined_store.h"
#include "bootstrap/store/store_protocol.h"
#include "bootstrap/store/store_secrets.h"
#include "os/fd.h"
#include "secure/stream.h"

namespace qccl::bootstrap {

struct TcpStoreOptions {
  std::string host;  // name or numeric address
  std::uint16_t port = 0;
  TimePoint deadline = kForever;  // for everything this client does
  const Clock* clock = nullptr;   // outlives the client
  std::string socket = {};        // not empty: an abstract unix socket of this host and user, instead of host and port
  StoreSecrets secrets = {};      // with a key: the store has it too, unless it is at a unix socket
  TimePoint connect_by = kForever;                // for its first connection alone
  bool retries = true;                            // a connection that is refused or lost before the store has answered
  Nanoseconds answer_limit = Nanoseconds::max();  // a store that takes longer to answer is lost
};

class TcpStore final : public PipelinedStore {
 public:
  // How long to retry a store that vanished.
  static constexpr Nanoseconds kVanishedLimit = std::chrono::seconds(5);

  explicit TcpStore(TcpStoreOptions options);
  // With a connection that is already introduced: TcpStoreServer::take_own_client().
  TcpStore(TcpStoreOptions options, os::Fd connected);

  // All throw Error: peer_lost if the connection broke (the next call connects anew, so the caller may retry),
  // deadline_exceeded if no store answers at the address by the deadline,
  // invalid_argument if it has another key or none, or has one where this rank has none.
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  std::vector<std::int64_t> counters(const std::vector<std::string>& keys) override;
  ClaimAnswer claim(const ClaimRequest& request, std::chrono::milliseconds timeout) override;
  void leave_will(const Will& will) override;
  bool knows_wills() const override { return serves_wills_; }

 private:
  // Requests that may be sent again, over another connection, and the answers to them.
  struct Exchange {
    std::string requests;
    Bytes answers;
  };

  Status connect(const Exchange& first = {});
  Result<os::Fd> dial() const;
  Status introduce(const Exchange& first, TimePoint deadline);
  Status send(const StoreRequest& request) { return send(encode_request(request)); }
  Status send(const std::string& requests);
  Status receive(Bytes target, TimePoint deadline);
  template <class T>
  Result<T> receive_integer(TimePoint deadline);
  Result<std::string> receive_string();
  Result<std::optional<std::string>> receive_awaited(const std::string& key, TimePoint deadline);
  Result<std::optional<std::string>> try_get(const std::string& key, std::chrono::milliseconds timeout);
  Result<ClaimAnswer> claim_at_once(const ClaimRequest& request, std::chrono::milliseconds timeout);

  Failure lost(const ErrorInfo& cause);

  TcpStoreOptions options_;
  secure::Stream stream_;
  TimePoint connect_deadline_;
  bool was_connected_ = false;
  bool serves_await_ = false;  // the server at the other end
  bool serves_wills_ = false;
  bool has_left_something_ = false;
};

}  // namespace qccl::bootstrap
