#include "job/transport_factory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "transport/pacing.h"
#include "transport/router.h"
#include "transport/shm/shm_endpoint.h"
#include "transport/tcp/tcp_endpoint.h"

namespace qccl::comm {
namespace {

// Shares memory with every peer that has a unix socket here, in ascending order, as all ranks must.
Result<std::vector<ShmLink>> share_memory(bootstrap::PeerSockets& links, const ShmExports& exports,
                                          const TransportOptions& options, const Clock& clock) {
  std::vector<ShmLink> shared;
  std::vector<int> without;
  std::string cause;  // of the first
  for (int peer = 0; peer < options.world; ++peer) {
    const auto index = static_cast<std::size_t>(peer);
    if (!links.local[index].valid()) continue;
    auto link = make_shm_link(std::move(links.local[index]), exports, peer, options.deadline, clock);
    if (link.ok()) {
      links.tcp[index].clear();
      shared.push_back(std::move(*link));
      continue;
    }
    const ErrorKind kind = link.error().kind;
    const bool is_refused = kind == ErrorKind::resource_exhausted || kind == ErrorKind::unsupported;
    if (!is_refused || links.tcp[index].empty()) return link.failure();
    without.push_back(peer);
    if (cause.empty()) cause = link.error().message;
  }
  if (!without.empty()) {
    log(LogLevel::warning, fmt::format("rank {}: no shared memory with rank{} {}, using TCP: {}", options.rank,
                                       without.size() == 1 ? "" : "s", fmt::join(without, ", "), cause));
  }
  return shared;
}

struct Endpoints {
  std::vector<std::unique_ptr<Endpoint>> all;
  std::vector<int> of_rank;  // the index of the endpoint that reaches each rank
};

Status add_shm(Endpoints& endpoints, os::Poller& poller, bootstrap::PeerSockets& links, const TransportOptions& options,
               const Clock& clock) {
  if (std::ranges::none_of(links.local, &os::Fd::valid)) return {};
  auto exports = create_shm_exports(options.rank, links.local_ranks);
  QCCL_ASSIGN(std::vector<ShmLink> shared, share_memory(links, exports, options, clock));
  if (shared.empty()) return {};
  for (const ShmLink& link : shared) {
    endpoints.of_rank[static_cast<std::size_t>(link.peer)] = static_cast<int>(endpoints.all.size());
  }
  const ShmOptions shm{.world = options.world, .shares_cores = options.shares_cores};
  QCCL_ASSIGN(auto endpoint, make_shm_endpoint(poller, shm, std::move(exports), std::move(shared)));
  endpoints.all.push_back(std::move(endpoint));
  return {};
}

Status add_tcp(Endpoints& endpoints, os::Poller& poller, bootstrap::PeerSockets& links,
               const TransportOptions& options) {
  if (std::ranges::all_of(links.tcp, &std::vector<secure::Stream>::empty)) return {};
  for (std::size_t peer = 0; peer < links.tcp.size(); ++peer) {
    if (!links.tcp[peer].empty()) endpoints.of_rank[peer] = static_cast<int>(endpoints.all.size());
  }
  TcpOptions tcp;
  tcp.distant_congestion_control = options.congestion == "system" ? "" : options.congestion;
  tcp.uses_all_connections = options.uses_all_connections;
  tcp.on_this_host = std::move(links.on_this_host);
  QCCL_ASSIGN(auto endpoint, make_tcp_endpoint(poller, tcp, std::move(links.tcp)));
  endpoints.all.push_back(std::move(endpoint));
  return {};
}

}  // namespace

Result<std::unique_ptr<Transport>> make_transport(bootstrap::PeerSockets links, const TransportOptions& options,
                                                  const Clock& clock) {
  QCCL_ASSIGN(os::Poller created, os::Poller::create());
  auto poller = std::make_unique<os::Poller>(std::move(created));
  const auto world = static_cast<std::size_t>(options.world);
  links.tcp.resize(world);
  links.local.resize(world);
  Endpoints endpoints;
  endpoints.of_rank.assign(world, -1);
  QCCL_TRY(add_shm(endpoints, *poller, links, options, clock));
  QCCL_TRY(add_tcp(endpoints, *poller, links, options));
  std::unique_ptr<Transport> transport =
      std::make_unique<Router>(std::move(poller), std::move(endpoints.all), std::move(endpoints.of_rank));
  if (!options.link_rate) return transport;
  QCCL_ASSIGN(const auto rate, parse_link_rate(*options.link_rate));
  return std::unique_ptr<Transport>(std::make_unique<PacedTransport>(std::move(transport), rate, clock));
}

}  // namespace qccl::comm
