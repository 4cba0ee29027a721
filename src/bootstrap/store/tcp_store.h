// Client of a TCPStore: rank 0's (tcp_store_server.h), torchrun's, or any other of torch's.
//
// Connects on first use, and again after the connection was lost, until its deadline, because the server may start
// later than this rank. A store that stops in good order may come back (a job that restarts on the same port), so the
// client waits for it. If it just vanishes and this rank has left something there, the client retries only briefly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/store/store_protocol.h"
#include "os/fd.h"
#include "qccl/store.h"

namespace qccl::bootstrap {

struct TcpStoreOptions {
  std::string host;  // name or numeric address
  std::uint16_t port = 0;
  TimePoint deadline = kForever;  // for everything this client does
  const Clock* clock = nullptr;   // outlives the client
  std::string socket = {};        // not empty: an abstract unix socket of this host and user, instead of host and port
};

class TcpStore final : public Store {
 public:
  // How long to retry a store that vanished.
  static constexpr Nanoseconds kVanishedLimit = std::chrono::seconds(5);

  explicit TcpStore(TcpStoreOptions options);
  // With a connection that is already introduced: TcpStoreServer::take_own_client().
  TcpStore(TcpStoreOptions options, os::Fd connected);

  // All three throw Error: peer_lost if the connection broke (the next call connects anew, so the caller may retry),
  // deadline_exceeded if no store answers at the address by the deadline.
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;

 private:
  Status connect();
  Result<os::Fd> dial() const;
  Status introduce(TimePoint deadline);
  Status send(const StoreRequest& request);
  Status receive(Bytes target, TimePoint deadline);
  template <class T>
  Result<T> receive_integer(TimePoint deadline);
  Result<std::string> receive_string();
  Result<bool> wait_for(const std::string& key, TimePoint deadline);
  Result<bool> cancel_wait();
  Result<std::optional<std::string>> try_get(const std::string& key, std::chrono::milliseconds timeout);

  TimePoint answer_deadline() const;
  Failure lost(const ErrorInfo& cause);
  Failure not_reached(const ErrorInfo& cause, Nanoseconds waited) const;
  std::string location() const;

  TcpStoreOptions options_;
  os::Fd socket_;
  TimePoint connect_deadline_;
  bool was_connected_ = false;
  bool has_left_something_ = false;
};

}  // namespace qccl::bootstrap
