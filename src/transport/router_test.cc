// How a router combines endpoints; transport_contract_test.cc has the rest.
#include "transport/router.h"

#include <gtest/gtest.h>

#include "transport/routed_mesh_test.h"

namespace qccl {
namespace {

using namespace transport_test;

TEST(Router, reaches_each_peer_by_its_endpoint) {
  RoutedMesh mesh(3, 2);
  EXPECT_STREQ(mesh[0].kind(WorldRank(1)), "shm");
  EXPECT_STREQ(mesh[0].kind(WorldRank(2)), "tcp");
  EXPECT_TRUE(mesh[0].is_local(WorldRank(1)));
  EXPECT_FALSE(mesh[0].is_local(WorldRank(2)));
}

TEST(Router, a_flood_on_one_endpoint_does_not_starve_the_other) {
  RoutedMesh mesh(3, 2);
  for (std::uint64_t i = 0; i < 50; ++i) ASSERT_TRUE(send_frame(mesh[1], 0, 64, i));
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(send_frame(mesh[2], 0, 64, i));
  mesh[2].progress();
  mesh[0].progress();
  int from_tcp = 0;
  for (int i = 0; i < 20; ++i) from_tcp += mesh[0].receive()->peer == WorldRank(2) ? 1 : 0;
  EXPECT_EQ(from_tcp, 10);
}

TEST(Router, sleeps_for_all_endpoints_at_once) {
  RoutedMesh mesh(3, 2);
  for (const int peer : {1, 2, 1, 2}) {
    std::thread sender([&] {
      ASSERT_TRUE(send_frame(mesh[peer], 0, 64, 7));
      mesh[peer].progress();
    });
    const ReceivedFrame frame = await_frame(mesh[0]);
    sender.join();
    EXPECT_EQ(frame.peer, WorldRank(peer));
    mesh[0].release(frame);
  }
}

TEST(Router, reports_losses_and_flushing_of_every_endpoint) {
  RoutedMesh mesh(3, 2);
  while (send_frame(mesh[0], 2, kMaxFrameBytes, 0)) continue;
  EXPECT_FALSE(mesh[0].flushed());
  mesh[1].close();
  EXPECT_EQ(await_loss(mesh[0]).peer, WorldRank(1));
  mesh[2].close();
  EXPECT_EQ(await_loss(mesh[0]).peer, WorldRank(2));
  EXPECT_TRUE(mesh[0].flushed());
}

TEST(Router, has_a_board_only_if_one_endpoint_reaches_every_peer) {
  EXPECT_NE(RoutedMesh(2, 2)[0].board(), nullptr);
  RoutedMesh mixed(3, 2);
  EXPECT_EQ(mixed[0].board(), nullptr);
  EXPECT_NE(mixed[0].host_memory().heap, nullptr);
  EXPECT_EQ(RoutedMesh(2, 1)[0].board(), nullptr);
}

TEST(Router, without_peers_it_only_sleeps) {
  Router alone(std::make_unique<os::Poller>(os::Poller::create().take_or_throw()), {}, {-1});
  EXPECT_FALSE(alone.progress());
  EXPECT_FALSE(alone.receive());
  EXPECT_TRUE(alone.flushed());
  EXPECT_EQ(alone.board(), nullptr);
  alone.wake();
  alone.sleep(kForever, steady);
}

}  // namespace
}  // namespace qccl
