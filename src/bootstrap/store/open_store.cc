#include "bootstrap/store/open_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "bootstrap/launcher/pmi.h"
#include "bootstrap/meeting/rank_text.h"
#include "bootstrap/store/tcp_store.h"
#include "os/net/interfaces.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

using Server = std::unique_ptr<TcpStoreServer>;

// "": every interface, unless no rank can be on another host.
Result<std::string> listen_address(const Membership& membership) {
  if (!on_one_host(membership)) return std::string();
  return os::local_address_towards(membership.master_address);
}

Failure of_rank(const Membership& membership, ErrorInfo info) {
  info.rank = membership.rank;
  info.message = rank_text(membership.rank, membership.world) + ": " + info.message;
  return Failure(std::move(info));
}

JobKeys keys_of(const Membership& membership) { return {membership.job, membership.restart, membership.world}; }

std::shared_ptr<Store> client_of(TcpStoreServer* own, TcpStoreOptions options) {
  if (own != nullptr) return std::make_shared<TcpStore>(std::move(options), own->take_own_client());
  return std::make_shared<TcpStore>(std::move(options));
}

Result<Server> start_server(const std::string& address, const Membership& membership) {
  auto server = TcpStoreServer::start(address, membership.master_port, keys_of(membership));
  if (server) return server;
  ErrorInfo info = server.error();
  if (info.kind == ErrorKind::resource_exhausted) {
    info.message += "; another job, or another process with rank 0, uses MASTER_PORT: end it or choose another port";
  }
  return of_rank(membership, std::move(info));
}

// If the launcher only gives its own address, rank 0 checks that it runs on that host. Names are not checked.
Status check_guess(const Membership& membership) {
  if (!membership.master_is_guess) return {};
  auto interfaces = os::list_interfaces("");
  if (!interfaces) return interfaces.failure();
  const bool here = std::any_of(interfaces->begin(), interfaces->end(), [&](const os::Interface& interface) {
    return interface.address == membership.master_address;
  });
  if (here) return {};
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("rank 0 is not on the host of mpirun ({}), where the other ranks look for it: give its "
                             "location, mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=PORT",
                             membership.master_address));
}

Result<OpenStore> open_at_address(const Membership& membership, Server server, TimePoint deadline, const Clock& clock) {
  OpenStore opened;
  opened.address = membership.master_address;
  TcpStoreOptions options{membership.master_address, membership.master_port, deadline, &clock};
  opened.location = "at " + os::address_text(options.host, options.port);
  if (membership.hosts_store) {
    if (const Status guess = check_guess(membership); !guess.ok()) return of_rank(membership, guess.error());
    auto address = listen_address(membership);
    if (!address) return address.failure();
    if (server == nullptr) {
      auto started = start_server(*address, membership);
      if (!started) return started.failure();
      server = std::move(*started);
    }
    opened.server = std::move(server);
  }
  opened.store = client_of(opened.server.get(), std::move(options));
  return opened;
}

Result<OpenStore> open_on_host(const Membership& membership, TimePoint deadline, const Clock& clock) {
  OpenStore opened;
  opened.location = "at unix socket @" + membership.meeting_socket;
  if (membership.hosts_store) {
    auto server = TcpStoreServer::start_local(membership.meeting_socket, keys_of(membership));
    if (!server) {
      ErrorInfo info = server.error();
      if (info.kind == ErrorKind::resource_exhausted) info.message += "; another process has rank 0 of this job";
      return of_rank(membership, std::move(info));
    }
    opened.server = std::move(*server);
  }
  opened.store = client_of(opened.server.get(), {"", 0, deadline, &clock, membership.meeting_socket});
  return opened;
}

// ---- through the launcher

// The address at which others reach this host: the launcher's name for it, unless the user chose interfaces; else the
// first interface that is neither loopback nor a container's bridge.
Result<std::string> own_address(const Membership& membership) {
  const std::string& filter = membership.interface_filter;
  if (filter.empty() && !membership.own_name.empty()) return membership.own_name;
  auto interfaces = os::list_interfaces(filter.empty() ? "^lo,docker,virbr,cni,veth" : filter);
  if (!interfaces) return interfaces.failure();
  for (const auto& interface : *interfaces) {
    if (!interface.link_local) return interface.address;
  }
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("no interface that is up passes {}, so that rank 0 has no address for the others",
                             filter.empty() ? "" : membership.filter_source + "=" + filter));
}

// "29500/10.0.0.1"
Status parse_location(const std::string& text, Membership& membership) {
  const auto slash = text.find('/');
  const auto [stop, error] =
      std::from_chars(text.data(), text.data() + std::min(slash, text.size()), membership.master_port);
  if (slash != std::string::npos && error == std::errc() && stop == text.data() + slash) {
    membership.master_address = text.substr(slash + 1);
    return {};
  }
  return Failure(ErrorKind::corrupt_data, fmt::format("the launcher gave \"{}\" for rank 0's location", text));
}

// Rank 0 listens on any free port before it announces that port.
Result<OpenStore> open_through_launcher(Membership membership, TimePoint deadline, const Clock& clock) {
  Server server;
  std::string own;
  if (membership.hosts_store && !pmi_has_shared()) {
    auto address = own_address(membership);
    if (!address) return of_rank(membership, address.error());
    auto started = start_server("", membership);
    if (!started) return started.failure();
    server = std::move(*started);
    own = fmt::format("{}/{}", server->port(), *address);
  }
  auto location = pmi_share(membership.pmi_descriptor, membership.rank, own, deadline, clock);
  if (!location) return of_rank(membership, location.error());
  QCCL_TRY(parse_location(*location, membership));
  return open_at_address(membership, std::move(server), deadline, clock);
}

}  // namespace

void OpenStore::close(Nanoseconds linger) {
  store.reset();
  if (server != nullptr) server->stop(linger);
  server.reset();
}

Result<OpenStore> open_store(const Membership& membership, std::shared_ptr<Store> own, TimePoint deadline,
                             const Clock& clock) {
  if (own != nullptr) {
    return OpenStore{.server = nullptr,
                     .store = std::move(own),
                     .location = "in the program's own store",
                     .address = membership.master_address};
  }
  if (!membership.meeting_socket.empty()) return open_on_host(membership, deadline, clock);
  if (membership.pmi_descriptor >= 0) return open_through_launcher(membership, deadline, clock);
  return open_at_address(membership, nullptr, deadline, clock);
}

}  // namespace qccl::bootstrap
