#include "rendezvous/open_store.h"

#include "os/interfaces.h"
#include "os/socket.h"
#include "rendezvous/tcp_store.h"
#include "rendezvous/words.h"

namespace qccl::rendezvous {
namespace {

// "": every interface, unless no rank can be on another host.
Result<std::string> listen_address(const Membership& membership) {
  if (!on_one_host(membership)) return std::string();
  return os::local_address_towards(membership.master_address);
}

Result<std::unique_ptr<TcpStoreServer>> start_server(const std::string& address, const Membership& membership) {
  auto server = TcpStoreServer::start(address, membership.master_port);
  if (server) return server;
  ErrorInfo info = server.error();
  info.rank = membership.rank;
  info.message = rank_text(membership.rank, membership.world) + ": " + info.message;
  if (info.kind == ErrorKind::resource_exhausted) {
    info.message += "; another job, or another process with rank 0, uses MASTER_PORT: end it or choose another port";
  }
  return Failure(std::move(info));
}

}  // namespace

void OpenStore::close(Nanoseconds linger) {
  store.reset();
  if (server != nullptr) server->stop(linger);
  server.reset();
}

Result<OpenStore> open_store(const Membership& membership, std::shared_ptr<Store> own, TimePoint deadline,
                             const Clock& clock) {
  OpenStore opened;
  if (own != nullptr) {
    opened.store = std::move(own);
    opened.place = "in the program's own store";
    return opened;
  }
  TcpStoreOptions options{membership.master_address, membership.master_port, deadline, &clock};
  opened.place = "at " + os::address_text(options.host, options.port);
  if (membership.hosts_store) {
    auto address = listen_address(membership);
    if (!address) return address.failure();
    auto server = start_server(*address, membership);
    if (!server) return server.failure();
    opened.server = std::move(*server);
    // The master's name may lead out of the host and not back in.
    options.host = address->empty() ? "127.0.0.1" : *address;
  }
  opened.store = std::make_shared<TcpStore>(std::move(options));
  return opened;
}

}  // namespace qccl::rendezvous
