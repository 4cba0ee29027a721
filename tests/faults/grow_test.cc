// Jobs that lose ranks and grow again: members are killed while newcomers wait at their doors.
#include <string>
#include <utility>
#include <vector>

#include "faults/job.h"

namespace qccl::testing {
namespace {

class Grow : public Transports {};

std::uint64_t sum_of(Communicator& comm, std::uint64_t own) {
  std::vector<std::uint64_t> values{own};
  comm.all_reduce(values);
  return values[0];
}

InitOptions open_options(const Rank& rank, int members) {
  InitOptions init = rank.options();
  init.world = members;
  init.open = true;
  return init;
}

// Joins at the doors that the members have left in the test's store.
InitOptions newcomer_options(const Rank& rank, int members) {
  InitOptions init = rank.options();
  const auto store = std::exchange(init.store, nullptr);
  init.rank.reset();
  init.world.reset();
  for (int member = 0; member < members; ++member) {
    const auto door = store->get("door " + std::to_string(member), std::chrono::seconds(30));
    init.join += (member == 0 ? "" : ",") + door.value_or("none");
  }
  return init;
}

Communicator start_member(Rank& rank, int members) {
  Communicator comm = rank.init(open_options(rank, members));
  rank.options().store->set("door " + std::to_string(rank.rank()), comm.door());
  return comm;
}

TEST_P(Grow, a_replacement_waits_at_another_door_when_the_first_member_dies) {
  constexpr int kMembers = 3;
  JobOptions options = job(kMembers + 1);
  options.faults = {{.rank = 0, .point = "summing", .after = Milliseconds(100)}};
  run_ranks(options, [](Rank& rank) {
    if (rank.rank() == kMembers) {
      Communicator grown = qccl::init(newcomer_options(rank, kMembers));
      EXPECT_EQ(grown.rank(), 2);
      EXPECT_EQ(sum_of(grown, 100), 112U);
      grown.barrier();
      return;
    }
    Communicator comm = start_member(rank, kMembers);
    sum_until_failure(rank, comm);
    Communicator rest = comm.shrink();
    Communicator grown = rest.grow({.at_least = 1});
    EXPECT_EQ(grown.size(), 3);
    EXPECT_EQ(grown.rank(), rank.rank() - 1);
    EXPECT_EQ(sum_of(grown, grown.rank() == 0 ? 5 : 7), 112U);
    grown.barrier();
  });
}

TEST_P(Grow, newcomers_that_die_in_the_grown_group_are_lost_like_any_rank) {
  constexpr int kMembers = 2;
  JobOptions options = job(kMembers + 2);
  options.faults = {{.rank = 2, .point = "grown"}};
  run_ranks(options, [](Rank& rank) {
    const bool is_member = rank.rank() < kMembers;
    Communicator comm =
        is_member ? start_member(rank, kMembers).grow({.at_least = 2}) : qccl::init(newcomer_options(rank, kMembers));
    EXPECT_EQ(comm.size(), 4);
    rank.point("grown");
    failure_of(rank, [&] {
      while (true) sum_of(comm, 1);
    });
    Communicator rest = comm.shrink();
    EXPECT_EQ(sum_of(rest, 1), 3U);
    EXPECT_EQ(rest.grow().size(), 3);
    rest.barrier();
  });
}

TEST_P(Grow, a_member_that_dies_while_the_others_grow_fails_grow_and_leaves_newcomers_waiting) {
  constexpr int kMembers = 3;
  JobOptions options = job(kMembers + 1);
  options.faults = {{.rank = 1, .point = "growing", .after = Milliseconds(200)}};
  run_ranks(options, [](Rank& rank) {
    if (rank.rank() == kMembers) {
      InitOptions init = newcomer_options(rank, kMembers);
      init.join = init.join.substr(init.join.rfind(',') + 1);  // the last member's
      Communicator grown = qccl::init(init);
      EXPECT_EQ(grown.size(), 3);
      EXPECT_EQ(sum_of(grown, 1), 3U);
      grown.barrier();
      return;
    }
    Communicator comm = start_member(rank, kMembers);
    comm.barrier();
    rank.point("growing");
    // Two newcomers never come.
    const ErrorInfo failed = failure_of(rank, [&] { comm.grow({.at_least = 2}); });
    EXPECT_EQ(failed.kind, ErrorKind::peer_lost) << failed.message;
    Communicator grown = comm.shrink().grow({.at_least = 1});
    EXPECT_EQ(grown.size(), 3);
    EXPECT_EQ(sum_of(grown, 1), 3U);
    grown.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Over, Grow, both_transports(), transport_name);

}  // namespace
}  // namespace qccl::testing
