// Shared by the tests of transports: the endpoints of a job in one process, frames whose contents can be checked, and
// waits that fail the test instead of hanging.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "os/net/socket.h"
#include "secure/stream.h"
#include "transport/endpoint.h"
#include "wire/frame.h"

namespace qccl::transport_test {

using namespace std::chrono_literals;

inline const SteadyClock steady;

// A wait that lasts until then has failed.
inline TimePoint wait_limit() { return steady.now() + 60s; }
inline bool going_well() { return !::testing::Test::HasFailure(); }

// ---- frames: a valid header with the number, then bytes that follow from it

inline void write_frame(Bytes target, std::uint64_t number) {
  wire::FrameHeader header;
  header.sequence = number;
  header.payload_bytes = static_cast<std::uint32_t>(target.size() - wire::kHeaderBytes);
  wire::encode_header(header, target.data());
  for (std::size_t i = wire::kHeaderBytes; i < target.size(); ++i) {
    target[i] = static_cast<std::byte>(i * 31 + i / 256 + number * 7);
  }
}

inline std::vector<std::byte> make_frame(std::size_t payload_bytes, std::uint64_t number) {
  std::vector<std::byte> frame(wire::kHeaderBytes + payload_bytes);
  write_frame(frame, number);
  return frame;
}

// Whatever number the transport has given it.
inline bool is_frame(ConstBytes bytes, std::uint64_t number) {
  if (bytes.size() < wire::kHeaderBytes) return false;
  std::vector<std::byte> unnumbered(bytes.begin(), bytes.end());
  wire::set_frame_number(unnumbered.data(), 0);
  return unnumbered == make_frame(bytes.size() - wire::kHeaderBytes, number);
}

// False if there is no room now.
inline bool send_frame(Transport& transport, int peer, std::size_t bytes, std::uint64_t number,
                       TrafficClass traffic = TrafficClass::data) {
  Reservation room = transport.reserve(WorldRank(peer), bytes, traffic);
  if (!room) return false;
  EXPECT_EQ(room.bytes().size(), bytes);
  write_frame(room.bytes(), number);
  transport.commit(std::move(room), bytes, {});
  return true;
}

// ---- waiting; every loop ends once the test has failed

inline void sleep_until_event(Transport& transport) {
  const TimePoint limit = wait_limit();
  transport.sleep(limit, steady);
  EXPECT_LT(steady.now(), limit) << "no event ended the sleep";
}

// Drives the transport until `get` returns something.
template <class Get>
auto await(Transport& transport, Get get) {
  auto got = get();
  while (going_well() && !got) {
    if (!transport.progress()) sleep_until_event(transport);
    got = get();
  }
  return got;
}

inline ReceivedFrame await_frame(Transport& transport) {
  return await(transport, [&] { return transport.receive(); }).value_or(ReceivedFrame{});
}

// The next loss; no frame may come before it.
inline Transport::PeerLoss await_loss(Transport& transport) {
  const auto next = [&] {
    EXPECT_FALSE(transport.receive()) << "a frame before the loss";
    return transport.next_loss();
  };
  return await(transport, next).value_or(Transport::PeerLoss{WorldRank(), "none"});
}

inline void send_when_there_is_room(Transport& transport, int peer, std::size_t bytes, std::uint64_t number) {
  await(transport, [&] { return send_frame(transport, peer, bytes, number); });
}

// Calls body(rank) in a thread for each rank.
inline void on_each_rank(int world, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) threads.emplace_back(body, rank);
  for (auto& thread : threads) thread.join();
}

// ---- endpoints

using Connect = os::SocketPair (*)();

inline os::SocketPair unix_pair() { return os::socket_pair().take_or_throw(); }

inline os::SocketPair tcp_pair() {
  const os::Fd listener = os::listen_tcp("127.0.0.1", 0).take_or_throw();
  auto dialled = os::connect_tcp("127.0.0.1", os::local_port(listener).value(), wait_limit(), steady).take_or_throw();
  return {std::move(dialled), std::move(*os::accept_connection(listener).take_or_throw())};
}

// A pair of sockets between every two ranks, as [rank][peer].
inline std::vector<std::vector<os::Fd>> connect_all(int world, Connect connect) {
  const auto ranks = static_cast<std::size_t>(world);
  std::vector<std::vector<os::Fd>> sockets(ranks);
  for (auto& each : sockets) each.resize(ranks);
  for (std::size_t low = 0; low < ranks; ++low) {
    for (std::size_t high = low + 1; high < ranks; ++high) {
      auto pair = connect();
      sockets[low][high] = std::move(pair.first);
      sockets[high][low] = std::move(pair.second);
    }
  }
  return sockets;
}

// As the connections of make_tcp_endpoint: one to each rank that has a socket.
inline std::vector<std::vector<secure::Stream>> one_each(std::vector<os::Fd> sockets) {
  std::vector<std::vector<secure::Stream>> connections(sockets.size());
  for (std::size_t rank = 0; rank < sockets.size(); ++rank) {
    if (sockets[rank].valid()) connections[rank].push_back(std::move(sockets[rank]));
  }
  return connections;
}

// The transports of all ranks of a job.
class Mesh {
 public:
  virtual ~Mesh() = default;
  virtual Transport& operator[](int rank) = 0;
};

class EndpointMesh : public Mesh {
 public:
  Endpoint& operator[](int rank) override { return *endpoints_[static_cast<std::size_t>(rank)]; }

 protected:
  os::Poller& add_poller() {
    return *pollers_.emplace_back(std::make_unique<os::Poller>(os::Poller::create().take_or_throw()));
  }

  std::vector<std::unique_ptr<os::Poller>> pollers_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace qccl::transport_test
