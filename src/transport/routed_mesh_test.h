// For tests: the ranks of a job on several hosts, each with a router over shared memory and TCP, in one process.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "transport/mesh_test.h"
#include "transport/router.h"
#include "transport/shm/shm_endpoint.h"
#include "transport/tcp/tcp_endpoint.h"

namespace qccl::transport_test {

class RoutedMesh final : public Mesh {
 public:
  RoutedMesh(int world, int ranks_per_host)
      : local_(connect_all(world, unix_pair)), remote_(connect_all(world, unix_pair)), routers_(local_.size()) {
    on_each_rank(world, [&](int rank) { join(rank, ranks_per_host); });
  }
  Router& operator[](int rank) override { return *routers_[static_cast<std::size_t>(rank)]; }

 private:
  void join(int rank, int ranks_per_host) {
    const auto own = static_cast<std::size_t>(rank);
    const int world = static_cast<int>(routers_.size());
    auto poller = std::make_unique<os::Poller>(os::Poller::create().take_or_throw());
    ShmExports exports = create_shm_exports(rank, ranks_per_host);
    std::vector<ShmLink> links;
    std::vector<int> endpoint_of_rank;
    for (int peer = 0; peer < world; ++peer) {
      const bool is_local = peer / ranks_per_host == rank / ranks_per_host;
      endpoint_of_rank.push_back(peer == rank ? -1 : is_local ? 0 : 1);
      if (peer == rank || !is_local) continue;
      const auto index = static_cast<std::size_t>(peer);
      remote_[own][index].reset();
      auto link = make_shm_link(std::move(local_[own][index]), exports, peer, wait_limit(), steady);
      links.push_back(std::move(link).take_or_throw());
    }
    std::vector<std::unique_ptr<Endpoint>> endpoints;
    endpoints.push_back(
        make_shm_endpoint(*poller, {.world = world}, std::move(exports), std::move(links)).take_or_throw());
    endpoints.push_back(make_tcp_endpoint(*poller, {}, one_each(std::move(remote_[own]))).take_or_throw());
    routers_[own] = std::make_unique<Router>(std::move(poller), std::move(endpoints), std::move(endpoint_of_rank));
  }

  std::vector<std::vector<os::Fd>> local_, remote_;  // sockets, as [rank][peer]
  std::vector<std::unique_ptr<Router>> routers_;
};

}  // namespace qccl::transport_test
