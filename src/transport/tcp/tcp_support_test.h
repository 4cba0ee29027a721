// Shared by the tests of the TCP transport.
#pragma once

#include <utility>
#include <vector>

#include "transport/mesh_test.h"
#include "transport/tcp/tcp_endpoint.h"

namespace qccl::tcp_test {

using namespace transport_test;
using transport_test::is_frame;

// The endpoints of a job whose ranks are connected by sockets.
class TcpMesh final : public EndpointMesh {
 public:
  explicit TcpMesh(int world, Connect connect = unix_pair, const TcpOptions& options = {}) {
    for (auto& sockets : connect_all(world, connect)) {
      endpoints_.push_back(make_tcp_endpoint(add_poller(), options, std::move(sockets)).take_or_throw());
    }
  }
};

// An endpoint of rank 0 whose connection to rank 1 ends in a socket of the test.
class Half final : public EndpointMesh {
 public:
  explicit Half(Connect connect = unix_pair) {
    auto pair = connect();
    std::vector<os::Fd> sockets(2);
    sockets[1] = std::move(pair.first);
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
