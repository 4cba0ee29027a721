// For tests: the ranks of a host, each with an endpoint, in one process.
//
// The thread sanitizer identifies memory by its address, so it sees a race only if both sides use the same mapping.
// `one_mapping` links ranks by hand that way; `handshake` does what processes do, with one mapping per side.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "os/net/unix_socket.h"
#include "transport/shm/layout.h"
#include "transport/shm/shm_endpoint.h"
#include "transport/shm/shm_link.h"

namespace qccl::shm::testing {

using namespace std::chrono_literals;

// The deadline of every wait: a test that still waits then has failed.
inline TimePoint patience() { return SteadyClock().now() + 60s; }

inline os::Fd duplicate(const os::Fd& fd) { return os::Fd(::dup(fd.get())); }

// One rank's link to `peer`, sharing the mappings of both.
inline ShmLink link_by_hand(const ShmExports& peer, std::shared_ptr<os::Mapping> pair, os::Fd socket) {
  ShmLink link;
  link.peer = peer.rank;
  link.large_slots = peer.large_slots;
  link.socket = std::move(socket);
  link.doorbell = duplicate(peer.doorbell);
  link.pair = std::move(pair);
  link.area = peer.area;
  return link;
}

// Calls body(rank) in a thread for each rank.
inline void on_each_rank(int world, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) threads.emplace_back(body, rank);
  for (auto& thread : threads) thread.join();
}

class Host {
 public:
  enum class Linked { one_mapping, handshake };

  Host(int world, Linked linked, int local_ranks = 8) : links_(static_cast<std::size_t>(world)) {
    for (int rank = 0; rank < world; ++rank) exports_.push_back(create_shm_exports(rank, local_ranks));
    linked == Linked::one_mapping ? link_all_by_hand() : link_all();
    for (int rank = 0; rank < world; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      pollers_.push_back(std::make_unique<os::Poller>(std::move(*os::Poller::create())));
      for (const ShmLink& link : links_[index]) pairs_.push_back({rank, link.peer, link.pair});
      areas_.push_back(exports_[index].area);
      auto made =
          make_shm_endpoint(*pollers_.back(), {.world = world}, std::move(exports_[index]), std::move(links_[index]));
      endpoints_.push_back(std::move(*made));
    }
  }

  Endpoint& operator[](int rank) { return *endpoints_[static_cast<std::size_t>(rank)]; }
  int world() const { return static_cast<int>(endpoints_.size()); }

  // The queue from `sender` to `receiver`, for a test that plays a hostile peer.
  FrameQueue queue(int sender, int receiver, std::uint32_t large_slots = kMaxLargeSlots) {
    for (const auto& pair : pairs_) {
      if (pair.rank != sender || pair.peer != receiver) continue;
      return {pair.memory->data() + (sender < receiver ? 0 : queue_bytes(large_slots)), large_slots};
    }
    ADD_FAILURE() << "no such pair";
    return {nullptr, large_slots};
  }
  std::byte* area(int rank) { return areas_[static_cast<std::size_t>(rank)]->data(); }

 private:
  struct Pair {
    int rank, peer;
    std::shared_ptr<os::Mapping> memory;
  };

  void link_all_by_hand() {
    for (std::size_t low = 0; low < exports_.size(); ++low) {
      for (std::size_t high = low + 1; high < exports_.size(); ++high) {
        auto sockets = os::socket_pair();
        auto memory = os::create_shared_memory("test-pair", pair_bytes(exports_[low].large_slots));
        auto pair = std::make_shared<os::Mapping>(std::move(memory->mapping));
        links_[low].push_back(link_by_hand(exports_[high], pair, std::move(sockets->first)));
        links_[high].push_back(link_by_hand(exports_[low], pair, std::move(sockets->second)));
      }
    }
  }

  void link_all() {
    const std::size_t world = exports_.size();
    std::vector<os::Fd> sockets(world * world);  // [rank][peer]
    for (std::size_t low = 0; low < world; ++low) {
      for (std::size_t high = low + 1; high < world; ++high) {
        auto both = os::socket_pair();
        sockets[low * world + high] = std::move(both->first);
        sockets[high * world + low] = std::move(both->second);
      }
    }
    on_each_rank(static_cast<int>(world), [&](int rank) {
      const auto own = static_cast<std::size_t>(rank);
      for (std::size_t peer = 0; peer < world; ++peer) {
        if (peer == own) continue;
        auto link = make_shm_link(std::move(sockets[own * world + peer]), exports_[own], static_cast<int>(peer),
                                  patience(), SteadyClock());
        ASSERT_TRUE(link.ok()) << link.error().message;
        links_[own].push_back(std::move(*link));
      }
    });
  }

  std::vector<ShmExports> exports_;
  std::vector<std::vector<ShmLink>> links_;
  std::vector<Pair> pairs_;
  std::vector<std::shared_ptr<os::Mapping>> areas_;
  std::vector<std::unique_ptr<os::Poller>> pollers_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

// ---- frames whose contents identify them

inline std::byte byte_of(std::uint64_t number, std::size_t position) {
  return static_cast<std::byte>(number * 131 + position * 7 + (position >> 8));
}

// The number, then bytes derived from it; at least 8 bytes.
inline void fill_frame(Bytes frame, std::uint64_t number) {
  store(frame.data(), number);
  for (std::size_t i = 8; i < frame.size(); ++i) frame[i] = byte_of(number, i);
}

inline bool is_frame(ConstBytes frame, std::uint64_t number) {
  if (frame.size() < 8 || load<std::uint64_t>(frame.data()) != number) return false;
  for (std::size_t i = 8; i < frame.size(); ++i) {
    if (frame[i] != byte_of(number, i)) return false;
  }
  return true;
}

// False if there is no room now.
inline bool send_frame(Transport& transport, int peer, std::size_t bytes, std::uint64_t number,
                       TrafficClass traffic = TrafficClass::data) {
  const Bytes room = transport.reserve(WorldRank(peer), bytes, traffic);
  if (room.empty()) return false;
  fill_frame(room, number);
  transport.commit(bytes);
  return true;
}

}  // namespace qccl::shm::testing
