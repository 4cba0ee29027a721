#include "engine/shrink/paxos.h"

#include <gtest/gtest.h>

namespace qccl::engine {
namespace {

const MemberSet kBoth{1, 1};
const MemberSet kFirst{1, 0};

TEST(Acceptor, promises_and_accepts_nothing_of_a_lower_ballot) {
  Acceptor acceptor;
  EXPECT_TRUE(acceptor.promise({2, 1}));
  EXPECT_FALSE(acceptor.promise({2, 0}));
  EXPECT_FALSE(acceptor.accept({1, 3}, kBoth));
  EXPECT_EQ(acceptor.accepted().ballot.round, 0u);
  EXPECT_TRUE(acceptor.accept({2, 1}, kBoth));
  EXPECT_EQ(acceptor.accepted().value, kBoth);
  EXPECT_TRUE(acceptor.promise({3, 0}));
  EXPECT_EQ(acceptor.accepted().value, kBoth) << "a promise keeps what was accepted";
}

TEST(Proposer, proposes_its_own_value_only_if_nothing_was_accepted) {
  Proposer proposer(GroupRank(0));
  const Ballot ballot = proposer.begin(kBoth, kBoth);
  EXPECT_FALSE(proposer.on_promise(GroupRank(0), ballot, {}));
  EXPECT_TRUE(proposer.on_promise(GroupRank(1), ballot, {}));
  EXPECT_EQ(proposer.value(), kBoth);
}

TEST(Proposer, proposes_the_accepted_value_of_the_highest_ballot) {
  Proposer proposer(GroupRank(0));
  const Ballot ballot = proposer.begin(kBoth, kBoth);
  EXPECT_FALSE(proposer.on_promise(GroupRank(0), ballot, {{2, 1}, kFirst}));
  EXPECT_TRUE(proposer.on_promise(GroupRank(1), ballot, {{1, 1}, kBoth}));
  EXPECT_EQ(proposer.value(), kFirst);
}

TEST(Proposer, has_chosen_once_the_whole_quorum_has_accepted) {
  Proposer proposer(GroupRank(1));
  proposer.see({7, 0});
  const Ballot ballot = proposer.begin(kBoth, kBoth);
  EXPECT_EQ(ballot, (Ballot{8, 1}));
  EXPECT_FALSE(proposer.on_accept(GroupRank(0), {7, 1})) << "of another ballot";
  EXPECT_FALSE(proposer.on_accept(GroupRank(0), ballot));
  EXPECT_FALSE(proposer.on_accept(GroupRank(0), ballot)) << "once more";
  EXPECT_TRUE(proposer.on_accept(GroupRank(1), ballot));
  proposer.stop();
  EXPECT_FALSE(proposer.on_accept(GroupRank(1), ballot));
}

}  // namespace
}  // namespace qccl::engine
