#include "engine/state/peer_monitor.h"

#include <gtest/gtest.h>

#include <utility>

#include "engine/frames/stub_transport_test.h"

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

// Reports what it is given.
class LosingTransport final : public testing::StubTransport {
 public:
  LosingTransport(PeerLoss loss, bool is_near) : StubTransport(is_near), loss_(std::move(loss)) {}
  std::optional<PeerLoss> next_loss() override { return std::exchange(loss_, std::nullopt); }

 private:
  std::optional<PeerLoss> loss_;
};

struct Graded {
  Transport::End end;
  bool is_near;
  seconds silence;
  LossGrade grade;
};

TEST(PeerMonitor, a_loss_is_certain_if_the_peers_system_tells_it_before_it_may_have_forgotten_the_connection) {
  using End = Transport::End;
  for (const auto& [end, is_near, silence, grade] : {Graded{End::by_peer, false, seconds(0), LossGrade::gone},
                                                     {End::by_peer, false, seconds(9), LossGrade::silent},
                                                     {End::by_peer, true, seconds(9), LossGrade::gone},
                                                     {End::broken, true, seconds(0), LossGrade::silent},
                                                     {End::faulty, false, seconds(0), LossGrade::silent}}) {
    const TimePoint start(seconds(100));
    PeerMonitor peers(WorldRank(0), 2, std::chrono::milliseconds(250), seconds(60), start);
    LosingTransport transport({WorldRank(1), "lost", end}, is_near);
    EXPECT_TRUE(peers.poll(transport, start + silence).empty()) << "a loss counts from the next round on";
    const auto due = peers.poll(transport, start + silence);
    ASSERT_EQ(due.size(), 1u);
    EXPECT_EQ(due[0].grade, grade) << static_cast<int>(end) << is_near << silence.count();
    EXPECT_EQ(peers[WorldRank(1)].gone, end != End::faulty) << "a faulty peer can still be told";
  }
}

TEST(PeerMonitor, a_silent_peer_may_turn_out_to_be_gone_but_not_the_other_way_round) {
  PeerMonitor peers(WorldRank(0), 2, std::chrono::milliseconds(250), seconds(60), TimePoint());
  EXPECT_TRUE(peers.lose(WorldRank(1), LossGrade::silent, "is silent"));
  EXPECT_FALSE(peers.lose(WorldRank(1), LossGrade::gone, "is gone"));
  EXPECT_EQ(peers[WorldRank(1)].loss(), LossGrade::gone);
  EXPECT_FALSE(peers.lose(WorldRank(1), LossGrade::silent, "is silent"));
  EXPECT_EQ(peers[WorldRank(1)].loss(), LossGrade::gone);
}

}  // namespace
}  // namespace qccl::engine
