// ncclGroupStart() and ncclGroupEnd(): several communicators of one thread, several calls, messages, communicators that
// are made in a group.
#include "nccl/memory.h"

namespace qccl::testing {
namespace {

class Groups : public Memories {};
INSTANTIATE_TEST_SUITE_P(All, Groups, kEveryMemory, memory_name);

constexpr int kWorld = 4;

TEST_P(Groups, one_thread_calls_for_all_ranks_several_times) {
  const auto comms = make_all(kWorld);
  std::vector<std::unique_ptr<Side>> sides;
  std::vector<float*> sums;
  std::vector<float*> products;
  for (int rank = 0; rank < kWorld; ++rank) {
    sides.push_back(std::make_unique<Side>(GetParam(), rank % 2));
    sums.push_back(sides.back()->make(std::vector<float>(1000, static_cast<float>(rank))));
    products.push_back(sides.back()->make(std::vector<float>(70'000, static_cast<float>(rank + 1))));
  }
  EXPECT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < kWorld; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const cudaStream_t stream = sides[at]->stream();
    EXPECT_NCCL(ncclAllReduce(sums[at], sums[at], 1000, ncclFloat32, ncclSum, comms[at], stream));
    EXPECT_NCCL(ncclAllReduce(products[at], products[at], 70'000, ncclFloat32, ncclProd, comms[at], stream));
    EXPECT_NCCL(ncclAllReduce(sums[at], sums[at], 1000, ncclFloat32, ncclMax, comms[at], stream));
  }
  EXPECT_NCCL(ncclGroupEnd());
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(sides[rank]->read(sums[rank], 1000), std::vector<float>(1000, 6));
    EXPECT_EQ(sides[rank]->read(products[rank], 70'000), std::vector<float>(70'000, 24));
  }
  sides.clear();
  destroy_all(comms);
}

// The streams are held, so the copy of the root's input can't have ended when the group has.
class GatedGroups : public NeedsDevices {};

TEST_F(GatedGroups, a_broadcast_out_of_place_leaves_the_host) {
  const auto comms = make_all(2);
  std::vector<std::unique_ptr<Side>> sides;
  std::vector<float*> inputs, outputs;
  for (int rank = 0; rank < 2; ++rank) {
    sides.push_back(std::make_unique<Side>(Where::device));
    inputs.push_back(sides.back()->make(std::vector<float>(1000)));
    outputs.push_back(sides.back()->make(std::vector<float>(1000)));
  }
  const std::vector<float> sent(1000, 7);
  for (const auto& side : sides) fake::hold(side->stream());
  fake::write(sides[1]->stream(), inputs[1], sent.data(), sent.size() * sizeof(float));
  EXPECT_NCCL(ncclGroupStart());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_NCCL(ncclBroadcast(inputs[rank], outputs[rank], 1000, ncclFloat32, 1, comms[rank], sides[rank]->stream()));
  }
  EXPECT_NCCL(ncclGroupEnd());
  fake::write(sides[1]->stream(), inputs[1], std::vector<float>(1000).data(), 1000 * sizeof(float));
  for (const auto& side : sides) fake::release(side->stream());
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(sides[rank]->read(outputs[rank], 1000), sent);
  sides.clear();
  destroy_all(comms);
}

TEST_P(Groups, a_ring_of_messages_that_all_send_first) {
  constexpr std::size_t kCount = 300'000;  // more than a send may leave behind
  run_ranks_as_threads(kWorld, [&](ncclComm_t comm, int rank) {
    Side side(GetParam());
    float* const sent = side.make(std::vector<float>(kCount, static_cast<float>(rank)));
    float* const received = side.make(std::vector<float>(kCount));
    const int before = (rank + kWorld - 1) % kWorld;
    EXPECT_NCCL(ncclGroupStart());
    EXPECT_NCCL(ncclSend(sent, kCount, ncclFloat32, (rank + 1) % kWorld, comm, side.stream()));
    EXPECT_NCCL(ncclRecv(received, kCount, ncclFloat32, before, comm, side.stream()));
    EXPECT_NCCL(ncclGroupEnd());
    EXPECT_EQ(side.read(received, kCount), std::vector<float>(kCount, static_cast<float>(before)));
  });
}

TEST_P(Groups, messages_to_oneself_and_between_two_outside_of_groups) {
  run_ranks_as_threads(2, [&](ncclComm_t comm, int rank) {
    Side side(GetParam());
    int* const own = side.make(std::vector<int>(10, rank + 7));
    int* const received = side.make(std::vector<int>(10));
    EXPECT_NCCL(ncclGroupStart());
    EXPECT_NCCL(ncclRecv(received, 10, ncclInt32, rank, comm, side.stream()));
    EXPECT_NCCL(ncclSend(own, 10, ncclInt32, rank, comm, side.stream()));
    EXPECT_NCCL(ncclGroupEnd());
    EXPECT_EQ(side.read(received, 10), std::vector<int>(10, rank + 7));
    if (rank == 0) {
      EXPECT_NCCL(ncclSend(own, 10, ncclInt32, 1, comm, side.stream()));
    } else {
      EXPECT_NCCL(ncclRecv(received, 10, ncclInt32, 0, comm, side.stream()));
      EXPECT_EQ(side.read(received, 10), std::vector<int>(10, 7));
    }
  });
}

// More calls of each than a communicator takes while none of them ends.
TEST(GroupsOfHostMemory, one_thread_makes_more_calls_than_can_be_in_flight) {
  constexpr std::size_t kCalls = 4200;
  const auto comms = make_all(2);
  std::vector<std::vector<int>> values(2, std::vector<int>(kCalls, 1));
  EXPECT_NCCL(ncclGroupStart());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (int& value : values[rank]) {
      EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[rank], nullptr));
    }
  }
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(values[0], std::vector<int>(kCalls, 2));
  EXPECT_EQ(values[1], std::vector<int>(kCalls, 2));
  destroy_all(comms);
}

TEST(GroupsOfHostMemory, nothing_moves_before_the_outermost_end) {
  const auto comms = make_all(2);
  int values[2] = {1, 2};
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_NCCL(ncclAllReduce(&values[rank], &values[rank], 1, ncclInt32, ncclSum, comms[rank], nullptr));
  }
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(values[0], 1);
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(values[0], 3);
  EXPECT_EQ(values[1], 3);
  destroy_all(comms);
}

TEST(GroupsOfHostMemory, a_wrong_call_fails_the_group_and_nothing_of_it_moves) {
  const auto comms = make_all(2);
  int values[2] = {1, 2};
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclAllReduce(&values[0], &values[0], 1, ncclInt32, ncclSum, comms[0], nullptr));
  EXPECT_EQ(ncclBroadcast(&values[1], &values[1], 1, ncclInt32, 2, comms[1], nullptr), ncclInvalidArgument);
  EXPECT_NCCL(ncclAllReduce(&values[1], &values[1], 1, ncclInt32, ncclSum, comms[1], nullptr));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);  // there is no group any more
  destroy_all(comms);
}

TEST(GroupsOfHostMemory, one_thread_makes_the_communicators_of_all_ranks) {
  const ncclUniqueId id = make_id();
  std::vector<ncclComm_t> comms(kWorld);
  EXPECT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_NCCL(ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], kWorld, id, rank));
  }
  EXPECT_NCCL(ncclGroupEnd());
  std::vector<ncclComm_t> halves(kWorld);
  EXPECT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < kWorld; ++rank) {
    const int color = rank == 3 ? NCCL_SPLIT_NOCOLOR : rank % 2;
    const auto at = static_cast<std::size_t>(rank);
    EXPECT_NCCL(ncclCommSplit(comms[at], color, -rank, &halves[at], nullptr));
  }
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(halves[3], nullptr);
  for (const std::size_t rank : {0u, 1u, 2u}) {
    int count = 0;
    int own = -1;
    EXPECT_NCCL(ncclCommCount(halves[rank], &count));
    EXPECT_NCCL(ncclCommUserRank(halves[rank], &own));
    EXPECT_EQ(count, rank == 1 ? 1 : 2);
    EXPECT_EQ(own, rank == 0 ? 1 : 0);  // keys fall with the rank
    EXPECT_NCCL(ncclCommDestroy(halves[rank]));
  }
  destroy_all(comms);
}

TEST(GroupsOfHostMemory, a_group_does_not_both_make_and_use_communicators) {
  const auto comms = make_all(1);
  const ncclUniqueId id = make_id();
  ncclComm_t made = nullptr;
  int value = 1;
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[0], nullptr));
  EXPECT_NCCL(ncclCommInitRank(&made, 1, id, 0));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(made, nullptr);
  destroy_all(comms);
}

}  // namespace
}  // namespace qccl::testing
