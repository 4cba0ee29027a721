// For tests: the ranks of a host, each with an endpoint in shared memory, in one process.
//
// The thread sanitizer identifies memory by its address, so it sees a race only if both sides use the same mapping.
// `one_mapping` links ranks by hand that way; `handshake` links them as processes do, with one mapping per side.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "os/net/socket.h"
#include "transport/mesh_test.h"
#include "transport/shm/frame_queue.h"
#include "transport/shm/shm_endpoint.h"

namespace qccl::shm {

class Host final : public transport_test::EndpointMesh {
 public:
  enum class Linked { one_mapping, handshake };

  explicit Host(int world, Linked linked = Linked::one_mapping, int local_ranks = 8)
      : links_(static_cast<std::size_t>(world)) {
    for (int rank = 0; rank < world; ++rank) exports_.push_back(create_shm_exports(rank, local_ranks));
    auto sockets = transport_test::connect_all(world, transport_test::unix_pair);
    linked == Linked::one_mapping ? link_by_hand(sockets) : link(sockets);
    for (std::size_t rank = 0; rank < links_.size(); ++rank) {
      for (const ShmLink& link : links_[rank]) pairs_.push_back({static_cast<int>(rank), link.peer, link.pair});
      areas_.push_back(exports_[rank].area);
      endpoints_.push_back(
          make_shm_endpoint(add_poller(), {.world = world}, std::move(exports_[rank]), std::move(links_[rank]))
              .take_or_throw());
    }
  }

  // The queue from `sender` to `receiver`, for a test that plays a hostile peer.
  FrameQueue queue(int sender, int receiver) {
    for (const auto& pair : pairs_) {
      if (pair.rank != sender || pair.peer != receiver) continue;
      return {pair.memory->data() + (sender < receiver ? 0 : queue_bytes(kMaxLargeSlots)), kMaxLargeSlots};
    }
    ADD_FAILURE() << "no such pair";
    return {nullptr, kMaxLargeSlots};
  }
  Area& area(int rank) { return *reinterpret_cast<Area*>(areas_[static_cast<std::size_t>(rank)]->data()); }

 private:
  using Sockets = std::vector<std::vector<os::Fd>>;
  struct Pair {
    int rank, peer;
    std::shared_ptr<os::Mapping> memory;
  };

  void link_by_hand(Sockets& sockets) {
    for (std::size_t low = 0; low < links_.size(); ++low) {
      for (std::size_t high = low + 1; high < links_.size(); ++high) {
        auto memory = os::create_shared_memory("test-pair", pair_bytes(exports_[low].large_slots)).take_or_throw();
        auto pair = std::make_shared<os::Mapping>(std::move(memory.mapping));
        for (const auto& [own, peer] : {std::pair(low, high), std::pair(high, low)}) {
          links_[own].push_back({.peer = exports_[peer].rank,
                                 .large_slots = exports_[peer].large_slots,
                                 .socket = std::move(sockets[own][peer]),
                                 .doorbell = os::Fd(::dup(exports_[peer].doorbell.get())),
                                 .pair = pair,
                                 .area = exports_[peer].area,
                                 .heap = exports_[peer].heap});
        }
      }
    }
  }

  void link(Sockets& sockets) {
    transport_test::on_each_rank(static_cast<int>(links_.size()), [&](int rank) {
      const auto own = static_cast<std::size_t>(rank);
      for (std::size_t peer = 0; peer < links_.size(); ++peer) {
        if (peer == own) continue;
        auto link = make_shm_link(std::move(sockets[own][peer]), exports_[own], static_cast<int>(peer),
                                  transport_test::wait_limit(), SteadyClock());
        ASSERT_TRUE(link.ok()) << link.error().message;
        links_[own].push_back(std::move(*link));
      }
    });
  }

  std::vector<ShmExports> exports_;
  std::vector<std::vector<ShmLink>> links_;
  std::vector<Pair> pairs_;
  std::vector<std::shared_ptr<os::Mapping>> areas_;
};

}  // namespace qccl::shm
