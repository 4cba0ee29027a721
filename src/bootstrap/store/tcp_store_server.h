// The key-value store that rank 0 serves while ranks find each other: torch's TCPStore protocol
// (store_protocol.h) on a thread of its own.
//
// Anyone can reach its port. Rank 0 itself comes by a socket pair, and may do what it likes; of all others
// - only what JobKeys allow is stored, once: what is there is not written again;
// - requests are short, and the next one is read when the answers before it have been taken;
// - who has left nothing yet is a stranger. There may be so many of them, as many as the process's descriptors admit;
//   beyond, the one goes that came first from the address that has the most. A unix socket takes no other user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/meeting/job_keys.h"
#include "os/fd.h"
#include "os/fork_list.h"

namespace qccl::bootstrap {

class TcpStoreServer {
 public:
  // Connections that have left nothing, beside those of the job's world.
  static constexpr std::size_t kMaxStrangers = 256;

  // Serves on a numeric address ("": every interface); port 0 lets the system choose. Without `keys`
  // everybody may write every key, and again, as at torch's. ResourceExhausted if the port is taken.
  static Result<std::unique_ptr<TcpStoreServer>> start(const std::string& address, std::uint16_t port,
                                                       std::optional<JobKeys> keys = {});

  // The same for processes of this host and user, on an abstract unix socket. ResourceExhausted if the name is taken.
  static Result<std::unique_ptr<TcpStoreServer>> start_local(const std::string& name, std::optional<JobKeys> keys = {});

  // As stop() without linger; in a forked child, nothing.
  ~TcpStoreServer();

  // 0 on a unix socket.
  std::uint16_t port() const { return port_; }

  // Rank 0's own connection, introduced, which nobody else can have. Once.
  os::Fd take_own_client() { return std::move(own_client_); }

  // Takes no more connections, tells those who wait for a key that it won't come, drops strangers, goes on
  // serving the others until they leave or `linger` has passed, then ends. Idempotent.
  void stop(Nanoseconds linger);

 private:
  class Loop;
  struct Door;  // what is listened on
  static Result<std::unique_ptr<TcpStoreServer>> serve(Door door, std::optional<JobKeys> keys);
  TcpStoreServer(std::unique_ptr<Loop> loop, std::uint16_t port, os::Fd own_client);

  std::unique_ptr<Loop> loop_;
  std::uint16_t port_;
  os::Fd own_client_;
  std::thread thread_;
  os::ForkMark mark_;
};

}  // namespace qccl::bootstrap
