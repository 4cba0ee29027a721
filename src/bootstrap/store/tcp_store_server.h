// The key-value store that rank 0 serves while ranks find each other, and a member at its door: torch's TCPStore
// protocol (store_protocol.h) on a thread of its own.
//
// Any process can reach its port. The server's own process uses a socket pair, without restrictions. For all others:
// - only what its rules allow is stored (store_rules.h), and only once: existing keys are not overwritten (kServesAwait
//   says so);
// - requests are short, and the next one is read only after the client has taken the earlier answers;
// - a client that has not shown the job's key, or, in a job without one, has stored nothing yet, is a stranger; rules
//   may let it stay one when it stores (trusts_writers()). The process's descriptors limit the number of strangers;
//   beyond it, the oldest stranger of the address that has the most is dropped. So is one that has been there for
//   kStrangerLimit, unless it waits for a key, which only a job without one lets it do, or its rules let it stay
//   (may_stay()). A unix socket accepts no other user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/store/store_rules.h"
#include "bootstrap/store/store_secrets.h"
#include "os/fd.h"

namespace qccl::bootstrap {

class TcpStoreServer {
 public:
  // Strangers, in addition to the clients that the rules expect.
  static constexpr std::size_t kMaxStrangers = 256;
  static constexpr Nanoseconds kStrangerLimit = std::chrono::seconds(10);

  // Serves on a numeric address ("": every interface); port 0 lets the system choose. Without `rules` every client may
  // write every key, repeatedly, as in torch's store. With `secrets` only ranks that have the key are served.
  // ResourceExhausted if the port is taken.
  static Result<std::unique_ptr<TcpStoreServer>> start(const std::string& address, std::uint16_t port,
                                                       std::shared_ptr<StoreRules> rules = {},
                                                       StoreSecrets secrets = {},
                                                       Nanoseconds stranger_limit = kStrangerLimit);

  // The same for processes of this host and user, on an abstract unix socket. ResourceExhausted if the name is taken.
  static Result<std::unique_ptr<TcpStoreServer>> start_local(const std::string& name,
                                                             std::shared_ptr<StoreRules> rules = {});

  // Like stop() without linger; does nothing in a forked child.
  ~TcpStoreServer();

  // 0 on a unix socket.
  std::uint16_t port() const { return port_; }

  // This process's own connection, already introduced, which no other process can obtain. Call once.
  os::Fd take_own_client() { return std::move(own_client_); }
  // For rules that have something to write (StoreRules::take_turn()). Thread-safe.
  void wake();

  // Accepts no more connections, tells clients that wait for a key that it will not come, drops strangers, and serves
  // the others until they leave or `linger` has passed. Then ends. Idempotent.
  void stop(Nanoseconds linger);

 private:
  class Loop;
  // `port`: 0 for a unix socket.
  static Result<std::unique_ptr<TcpStoreServer>> serve(os::Fd listener, std::uint16_t port,
                                                       std::shared_ptr<StoreRules> rules, StoreSecrets secrets,
                                                       Nanoseconds stranger_limit);
  TcpStoreServer(std::unique_ptr<Loop> loop, std::uint16_t port, os::Fd own_client);

  std::unique_ptr<Loop> loop_;
  std::uint16_t port_;
  os::Fd own_client_;
  std::thread thread_;
  os::ForkMark mark_;
};

}  // namespace qccl::bootstrap
