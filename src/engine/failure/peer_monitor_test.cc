#include "engine/failure/peer_monitor.h"

#include <gtest/gtest.h>

namespace qccl::engine {
namespace {

using std::chrono::seconds;

TEST(PeerMonitor, a_peer_is_silent_from_the_peer_timeout_on_unless_it_is_this_rank_or_lost) {
  const TimePoint start(seconds(100));
  PeerMonitor peers(WorldRank(1), 3, std::chrono::milliseconds(250), seconds(60), start);
  peers.heard(WorldRank(0), start + seconds(30));
  peers.heard(WorldRank(2), start + seconds(40));
  EXPECT_FALSE(peers.any_is_silent(start + seconds(89))) << "this rank never hears itself";
  EXPECT_TRUE(peers.any_is_silent(start + seconds(90)));
  peers.lose(WorldRank(0), LossGrade::silent, "was lost");
  EXPECT_FALSE(peers.any_is_silent(start + seconds(99)));
  EXPECT_TRUE(peers.any_is_silent(start + seconds(100)));
}

}  // namespace
}  // namespace qccl::engine
