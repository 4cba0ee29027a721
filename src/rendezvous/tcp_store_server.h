// The key-value store that rank 0 serves while ranks find each other: torch's TCPStore protocol
// (store_protocol.h) on a thread of its own.
//
// Anyone can reach its port, so nothing a stranger sends is kept: a connection that does not
// begin as the protocol wants, or breaks it later, is dropped; one that stays silent counts
// against a limit at which the oldest silent one is dropped. Who has introduced itself stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/result.h"
#include "os/fd.h"
#include "os/fork_list.h"

namespace qccl::rendezvous {

class TcpStoreServer {
 public:
  // Connections that have not introduced themselves; beyond, the oldest goes.
  static constexpr std::size_t kMaxStrangers = 256;

  // Serves on a numeric address ("": every interface); port 0 lets the system choose.
  // ResourceExhausted if the port is taken.
  static Result<std::unique_ptr<TcpStoreServer>> start(const std::string& address, std::uint16_t port);

  // The same for processes of this host, on an abstract unix socket. ResourceExhausted if the name is taken.
  static Result<std::unique_ptr<TcpStoreServer>> start_local(const std::string& name);

  // As stop() without linger; in a forked child, nothing.
  ~TcpStoreServer();

  // 0 on a unix socket.
  std::uint16_t port() const { return port_; }

  // Takes no more connections, tells those who wait for a key that it won't come, goes on
  // serving those who are connected until they leave or `linger` has passed, then ends.
  // Idempotent.
  void stop(Nanoseconds linger);

 private:
  class Loop;
  static Result<std::unique_ptr<TcpStoreServer>> serve(os::Fd listener, std::uint16_t port);
  TcpStoreServer(std::unique_ptr<Loop> loop, std::uint16_t port);

  std::unique_ptr<Loop> loop_;
  std::uint16_t port_;
  std::thread thread_;
  os::ForkMark mark_;
};

}  // namespace qccl::rendezvous
