#include "bootstrap/meeting/open_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "bootstrap/launcher/pmi.h"
#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/protocol/key_rules.h"
#include "bootstrap/store/tcp_store.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

using Server = std::unique_ptr<TcpStoreServer>;

// A job's part in opening its store.
struct Opening {
  const LaunchIdentity& launch;
  const StoreSecrets secrets;
  const TimePoint deadline;
  const Clock& clock;
};

std::shared_ptr<StoreRules> rules_of(const LaunchIdentity& launch) {
  return std::make_shared<JobRules>(launch.job, launch.restart, launch.world);
}

std::shared_ptr<Store> client_of(TcpStoreServer* own, TcpStoreOptions options) {
  if (own != nullptr) return std::make_shared<TcpStore>(std::move(options), own->take_own_client());
  return std::make_shared<TcpStore>(std::move(options));
}

// The server, or its failure with `advice` if another process has its port or socket.
Result<Server> or_advice(Result<Server> server, const char* advice) {
  if (server || server.error().kind != ErrorKind::resource_exhausted) return server;
  Failure failure = server.failure();
  failure.info().message += advice;
  return failure;
}

// `address`: "" for every interface.
Result<Server> start_server(const std::string& address, const LaunchIdentity& launch, const StoreSecrets& secrets) {
  return or_advice(TcpStoreServer::start(address, launch.master_port, rules_of(launch), secrets),
                   "; another job, or another process with rank 0, uses MASTER_PORT: end it or choose another port");
}

// If the launcher only gives its own address, rank 0 checks that it runs on that host. Names are not checked.
Status check_guess(const LaunchIdentity& launch) {
  if (!launch.master_is_guess) return {};
  QCCL_ASSIGN(const auto interfaces, os::list_interfaces(""));
  if (std::ranges::find(interfaces, launch.master_address, &os::Interface::address) != interfaces.end()) return {};
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("rank 0 is not on the host of mpirun ({}), where its peers look for it: give its address, "
                             "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=PORT",
                             launch.master_address));
}

// `server`: rank 0's, if it is listening already.
Result<OpenStore> open_at_address(const Opening& opening, Server server) {
  const LaunchIdentity& launch = opening.launch;
  if (launch.hosts_store) {
    QCCL_TRY(check_guess(launch));
    std::string address;
    if (on_one_host(launch)) {
      QCCL_ASSIGN(address, os::local_address_towards(launch.master_address, opening.deadline, opening.clock));
    }
    if (server == nullptr) {
      QCCL_ASSIGN(server, start_server(address, launch, opening.secrets));
    }
  }
  TcpStoreOptions options{.host = launch.master_address,
                          .port = launch.master_port,
                          .deadline = opening.deadline,
                          .clock = &opening.clock,
                          .secrets = opening.secrets};
  OpenStore opened{.location = "at " + os::address_text(options.host, options.port), .address = options.host};
  opened.store = client_of(server.get(), std::move(options));
  opened.server = std::move(server);
  return opened;
}

Result<OpenStore> open_on_host(const LaunchIdentity& launch, TimePoint deadline, const Clock& clock) {
  OpenStore opened{.location = "at unix socket @" + launch.meeting_socket};
  if (launch.hosts_store) {
    QCCL_ASSIGN(opened.server, or_advice(TcpStoreServer::start_local(launch.meeting_socket, rules_of(launch)),
                                         "; another process has rank 0 of this job"));
  }
  opened.store = client_of(opened.server.get(), {"", 0, deadline, &clock, launch.meeting_socket});
  return opened;
}

// ---- through the launcher

// The address at which peers reach this host: the launcher's name for it, unless the user chose interfaces; else the
// first interface that is neither loopback nor a container's bridge.
Result<std::string> own_address(const LaunchIdentity& launch) {
  const std::string& filter = launch.interface_filter;
  if (filter.empty() && !launch.own_name.empty()) return launch.own_name;
  QCCL_ASSIGN(const auto interfaces, os::list_interfaces(filter.empty() ? "^lo,docker,virbr,cni,veth" : filter));
  const auto found = std::ranges::find(interfaces, false, &os::Interface::link_local);
  if (found != interfaces.end()) return found->address;
  const std::string passed = filter.empty() ? "" : fmt::format(" and passes {}={}", launch.filter_source, filter);
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("rank 0 has no address for its peers: no interface is up{}", passed));
}

// "29500/10.0.0.1"
Status parse_master(const std::string& text, LaunchIdentity& launch) {
  const auto slash = text.find('/');
  const auto port = parse_number<std::uint16_t>(text.substr(0, slash));
  if (slash == std::string::npos || !port) {
    return Failure(ErrorKind::corrupt_data, fmt::format("the launcher gave \"{}\" as rank 0's port and address", text));
  }
  launch.master_port = *port;
  launch.master_address = text.substr(slash + 1);
  return {};
}

// Rank 0 listens on any free port before it announces that port.
Result<OpenStore> open_through_launcher(const Opening& opening) {
  LaunchIdentity launch = opening.launch;
  Server server;
  std::string own;
  if (launch.hosts_store && !pmi_has_shared()) {
    QCCL_ASSIGN(const auto address, own_address(launch));
    QCCL_ASSIGN(server, start_server("", launch, opening.secrets));
    own = fmt::format("{}/{}", server->port(), address);
  }
  auto shared = pmi_share(launch.pmi_descriptor, launch.rank, own, opening.deadline, opening.clock);
  if (!shared) return shared.failure();
  QCCL_TRY(parse_master(*shared, launch));
  return open_at_address({launch, opening.secrets, opening.deadline, opening.clock}, std::move(server));
}

}  // namespace

void OpenStore::close(Nanoseconds linger) {
  store.reset();
  if (server != nullptr) server->stop(linger);
  server.reset();
}

Result<OpenStore> open_store(const LaunchIdentity& launch, std::shared_ptr<Store> own, TimePoint deadline,
                             const Clock& clock, std::shared_ptr<const secure::Key> key) {
  if (own != nullptr) {
    return OpenStore{
        .store = std::move(own), .location = "in the program's own store", .address = launch.master_address};
  }
  if (launch.launcher_serves) key.reset();
  const Opening opening{launch, {std::move(key), launch.job, launch.restart}, deadline, clock};
  auto opened = !launch.meeting_socket.empty() ? open_on_host(launch, deadline, clock)
                : launch.pmi_descriptor >= 0   ? open_through_launcher(opening)
                                               : open_at_address(opening, nullptr);
  if (!opened) return named(launch.rank, launch.world, opened.error());
  return opened;
}

}  // namespace qccl::bootstrap
