// Shared by the tests of the TCP transport: connected pairs, frames whose contents can be checked, and an endpoint that
// a test drives step by step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "os/net/socket.h"
#include "transport/tcp/tcp_endpoint.h"
#include "wire/frame.h"

namespace qccl::tcp_test {

using namespace std::chrono_literals;

inline const SteadyClock steady;
inline constexpr int kStepLimit = 200'000;  // for loops that end long before unless something is broken

// Payload bytes are a function of (seed, position), so that the receiver can check them.
inline void write_frame(Bytes target, std::uint64_t sequence) {
  wire::FrameHeader header;
  header.sequence = sequence;
  header.payload_bytes = static_cast<std::uint32_t>(target.size() - wire::kHeaderBytes);
  wire::encode_header(header, target.data());
  for (std::size_t i = wire::kHeaderBytes; i < target.size(); ++i) {
    target[i] = static_cast<std::byte>(i * 31 + i / 256 + sequence * 7);
  }
}

inline std::vector<std::byte> make_frame(std::size_t payload_bytes, std::uint64_t sequence) {
  std::vector<std::byte> frame(wire::kHeaderBytes + payload_bytes);
  write_frame(frame, sequence);
  return frame;
}

inline bool is_frame(ConstBytes bytes, std::size_t payload_bytes, std::uint64_t sequence) {
  const auto expected = make_frame(payload_bytes, sequence);
  return std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end());
}

inline os::SocketPair unix_pair() {
  auto pair = os::socket_pair();
  EXPECT_TRUE(pair.ok());
  return std::move(*pair);
}

inline os::SocketPair tcp_pair() {
  auto listener = os::listen_tcp("127.0.0.1", 0);
  EXPECT_TRUE(listener.ok());
  auto dialled = os::connect_tcp("127.0.0.1", os::local_port(*listener).value(), steady.now() + 20s, steady);
  EXPECT_TRUE(dialled.ok());
  auto accepted = os::accept_connection(*listener);
  EXPECT_TRUE(accepted.ok() && accepted->has_value());
  return {std::move(*dialled), std::move(**accepted)};
}

// An endpoint with its poller, connected to rank `peer` only.
struct Side {
  Side(int peer_rank, os::Fd fd, TcpOptions options = {}) : peer(peer_rank) {
    std::vector<os::Fd> sockets(static_cast<std::size_t>(peer_rank) + 1);
    sockets[static_cast<std::size_t>(peer_rank)] = std::move(fd);
    start(std::move(sockets), options);
  }
  explicit Side(std::vector<os::Fd> sockets, TcpOptions options = {}) { start(std::move(sockets), options); }

  void start(std::vector<os::Fd> sockets, const TcpOptions& options) {
    auto made = os::Poller::create();
    EXPECT_TRUE(made.ok());
    poller = std::make_unique<os::Poller>(std::move(*made));
    auto transport = make_tcp_endpoint(*poller, options, std::move(sockets));
    EXPECT_TRUE(transport.ok());
    endpoint = std::move(*transport);
  }

  Endpoint* operator->() { return endpoint.get(); }

  bool send(std::size_t payload_bytes, std::uint64_t sequence, TrafficClass traffic = TrafficClass::data) {
    return send_to(peer, payload_bytes, sequence, traffic);
  }
  bool send_to(int rank, std::size_t payload_bytes, std::uint64_t sequence, TrafficClass traffic = TrafficClass::data) {
    const Bytes room = endpoint->reserve(WorldRank(rank), wire::kHeaderBytes + payload_bytes, traffic);
    if (room.empty()) return false;
    write_frame(room, sequence);
    endpoint->commit(room.size());
    return true;
  }

  // Drives this side alone until a frame arrives.
  std::optional<ReceivedFrame> next_frame() {
    for (int step = 0; step < kStepLimit; ++step) {
      if (auto frame = endpoint->receive()) return frame;
      endpoint->progress();
    }
    return std::nullopt;
  }
  std::optional<Transport::PeerLoss> next_loss() {
    for (int step = 0; step < kStepLimit; ++step) {
      if (auto loss = endpoint->next_loss()) return loss;
      endpoint->progress();
    }
    return std::nullopt;
  }

  int peer = -1;
  std::unique_ptr<os::Poller> poller;
  std::unique_ptr<Endpoint> endpoint;
};

inline void write_all(const os::Fd& fd, ConstBytes bytes) {
  ASSERT_TRUE(os::write_exactly(fd, bytes, steady.now() + 20s, steady).ok());
}

// Sends frames of the given sizes and checks the received ones.
struct Exchange {
  Exchange(Side& which, std::vector<std::size_t> out, std::vector<std::size_t> in)
      : side(which), outgoing(std::move(out)), incoming(std::move(in)) {}

  bool done() const { return sent == outgoing.size() && received == incoming.size(); }
  bool step() {
    bool moved = side->progress();
    while (sent < outgoing.size() && side.send(outgoing[sent], sent)) ++sent, moved = true;
    while (auto frame = side->receive()) {
      EXPECT_LT(received, incoming.size());
      EXPECT_TRUE(is_frame(frame->bytes, incoming[received], received)) << "frame " << received;
      EXPECT_EQ(frame->peer, WorldRank(side.peer));
      side->release(*frame);
      ++received;
    }
    return moved;
  }

  Side& side;
  std::vector<std::size_t> outgoing, incoming;
  std::size_t sent = 0, received = 0;
};

inline std::vector<std::size_t> random_sizes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::size_t> sizes(count);
  for (auto& size : sizes) size = random() % (1u << (random() % 19));
  sizes.front() = 0;
  sizes.back() = kMaxPayloadBytes;
  return sizes;
}

}  // namespace qccl::tcp_test
