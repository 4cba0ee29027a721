// Jobs that lose ranks and grow again: members are killed while newcomers wait at their doors.
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bootstrap/door/door.h"
#include "bootstrap/door/newcomer.h"
#include "faults/growing.h"

namespace qccl::testing {
namespace {

class Grow : public Transports {};

std::uint64_t sum_of(Communicator& comm, std::uint64_t own) {
  std::vector<std::uint64_t> values{own};
  comm.all_reduce(values);
  return values[0];
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

TEST_P(Grow, a_replacement_finds_the_living_members_in_the_store_of_the_start) {
  constexpr int kMembers = 3;
  JobOptions options = job(kMembers + 1);
  options.faults = {{.rank = 2, .point = "summing", .after = Milliseconds(20)}};
  run_ranks(options, [](Rank& rank) {
    const auto sum = [](Communicator& grown) {
      EXPECT_EQ(grown.size(), 3);
      EXPECT_EQ(sum_of(grown, 1), 3U);
      grown.barrier();
    };
    if (rank.rank() == kMembers) {
      InitOptions init = rank.options();
      init.store->get("one is lost", std::chrono::seconds(30));
      init.rank.reset();
      init.world.reset();
      init.join = "store";
      Communicator grown = qccl::init(init);
      return sum(grown);
    }
    Communicator comm = rank.init(open_options(rank, kMembers));
    sum_until_failure(rank, comm);
    Communicator rest = comm.shrink();
    rank.options().store->set("one is lost", "");
    Communicator grown = rest.grow({.at_least = 1});
    sum(grown);
  });
}

bootstrap::Door::Called call_newcomer(bootstrap::Door& door) {
  const SteadyClock clock;
  const auto soon = [&] { return clock.now() + std::chrono::seconds(30); };
  door.wait_for_another(soon());
  return door.call(soon());
}

TEST(Newcomer, leaves_the_door_of_a_member_that_stops_while_it_waits_there) {
  JobOptions options{.world = 3};
  options.faults = {{.action = Fault::Action::stop, .rank = 0, .point = "one waits"}};
  run_ranks(options, [](Rank& rank) {
    const SteadyClock clock;
    const std::string job = "open";
    const auto store = rank.options().store;
    if (rank.rank() < 2) {
      const auto door = bootstrap::Door::open({.job = job}).take_or_throw();
      store->set("door " + std::to_string(rank.rank()), door->address());
      auto called = call_newcomer(*door);
      if (rank.rank() == 0) return rank.point("one waits");
      called.seat({.rank = 1, .world = 2, .job = "grown", .timeout_ns = 1, .meeting_ns = 1});
      called.admit();
      store->get("seated", std::chrono::seconds(30));
      return;
    }
    const auto doors = bootstrap::parse_doors(doors_of(*store, 2), "test").take_or_throw();
    bootstrap::Newcomer newcomer(bootstrap::fixed_doors(doors), job, nullptr, clock.now() + std::chrono::seconds(50),
                                 clock);
    const auto make_card = [](const std::string&) { return Result<std::string>("card"); };
    EXPECT_EQ(newcomer.wait_for_seat(make_card).take_or_throw().job, "grown");
    EXPECT_TRUE(newcomer.settle(true));
    store->set("seated", "");
  });
}

INSTANTIATE_TEST_SUITE_P(Over, Grow, both_transports(), transport_name);

}  // namespace
}  // namespace qccl::testing
