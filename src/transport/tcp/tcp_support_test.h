// Shared by the tests of the TCP transport.
#pragma once

#include <utility>
#include <vector>

#include "secure/tls_pair.h"
#include "transport/mesh_test.h"
#include "transport/tcp/tcp_endpoint.h"

namespace qccl::tcp_test {

using namespace transport_test;
using transport_test::is_frame;

// The endpoints of a job whose ranks are connected by sockets, `connections` between every two, with TLS or without.
class TcpMesh final : public EndpointMesh {
 public:
  explicit TcpMesh(int world, Connect connect = unix_pair, const TcpOptions& options = {}, int connections = 1,
                   bool encrypts = false) {
    std::vector<std::vector<std::vector<secure::Stream>>> sockets(static_cast<std::size_t>(world));
    for (auto& each : sockets) each.resize(sockets.size());
    for (int i = 0; i < connections; ++i) {
      auto all = connect_all(world, connect);
      for (std::size_t rank = 0; rank < sockets.size(); ++rank) {
        for (std::size_t peer = 0; peer < sockets.size(); ++peer) {
          if (peer != rank) sockets[rank][peer].push_back(std::move(all[rank][peer]));
        }
      }
    }
    for (std::size_t low = 0; encrypts && low < sockets.size(); ++low) {
      for (std::size_t high = low + 1; high < sockets.size(); ++high) {
        for (std::size_t i = 0; i < sockets[low][high].size(); ++i) {
          secure::encrypt(sockets[high][low][i], sockets[low][high][i]);
        }
      }
    }
    for (auto& each : sockets) {
      endpoints_.push_back(make_tcp_endpoint(add_poller(), options, std::move(each)).take_or_throw());
    }
  }
};

// An endpoint of rank 0 whose connection to rank 1 ends in a socket of the test.
class Half final : public EndpointMesh {
 public:
  explicit Half(Connect connect = unix_pair) {
    auto pair = connect();
    std::vector<std::vector<secure::Stream>> sockets(2);
    sockets[1].push_back(std::move(pair.first));
    peer = std::move(pair.second);
    endpoints_.push_back(make_tcp_endpoint(add_poller(), {}, std::move(sockets)).take_or_throw());
  }
  Endpoint& operator*() { return (*this)[0]; }
  Endpoint* operator->() { return &(*this)[0]; }
  void write(ConstBytes bytes) { ASSERT_TRUE(os::write_exactly(peer, bytes, wait_limit(), steady).ok()); }
  void destroy() { endpoints_.clear(); }

  os::Fd peer;
};

inline bool is_frame(ConstBytes bytes, std::size_t payload_bytes, std::uint64_t number) {
  return bytes.size() == wire::kHeaderBytes + payload_bytes && transport_test::is_frame(bytes, number);
}

}  // namespace qccl::tcp_test
