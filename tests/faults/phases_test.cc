// Kills at random times of each phase of a job: no survivor hangs, each has a verdict, and all go on together. Prints
// how long after the kill the last survivor has its verdict, and how long after it the repeated call's result.
//
// KILLS says how many in each phase, KILLS_SEED with which times.
#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "faults/growing.h"
#include "support/elements.h"
#include "support/long_run.h"

namespace qccl::testing {
namespace {

constexpr std::uint64_t kFirstSeed = 20261127;
constexpr int kWorld = 4;

int kills() { return static_cast<int>(environment_number("KILLS", 3)); }

// Times after kills, in milliseconds.
class Times {
 public:
  // Adds the time of the last rank that reached the point, if any did.
  void add(const Report& report, const char* point, Time kill) {
    std::optional<double> last;
    for (const RankReport& rank : report.ranks) {
      const auto found = rank.points.find(point);
      if (rank.fault || found == rank.points.end()) continue;
      const double time = std::chrono::duration<double, std::milli>(found->second - kill).count();
      last = std::max(last.value_or(0), time);
    }
    if (last) times_.push_back(*last);
  }
  std::string text() {
    std::ranges::sort(times_);
    if (times_.empty()) return "none";
    return fmt::format("median {:.1f} ms, most {:.1f} ms", times_[times_.size() / 2], times_.back());
  }

 private:
  std::vector<double> times_;
};

class Kills : public Transports {
 protected:
  std::string named(const char* phase) const {
    return fmt::format("{} over {}", phase, GetParam() == TransportChoice::shm ? "shm" : "tcp");
  }
  // Runs jobs in which `victim`, or a random rank, dies up to `within` ms after it has reached the point "begin".
  struct Plan {
    std::string phase;
    int world = kWorld;
    std::uint64_t within_ms = 30;
    std::vector<Fault> first{};  // faults before that
    std::optional<int> victim{};
  };
  void kill_in(const Plan& plan, const std::function<void(Rank&, int victim)>& body) {
    const std::uint64_t seed = environment_number("KILLS_SEED", kFirstSeed);
    Random random(seed);
    Times verdicts, retries;
    for (int kill = 0; kill < kills() && !::testing::Test::HasFailure(); ++kill) {
      const int drawn = static_cast<int>(random.below(static_cast<std::uint64_t>(plan.world)));
      const int victim = plan.victim.value_or(drawn);
      JobOptions options = job(plan.world);
      options.faults = plan.first;
      const Milliseconds after(random.below(plan.within_ms));
      options.faults.push_back({.rank = victim, .point = "begin", .after = after});
      SCOPED_TRACE(fmt::format("kill {}: rank {} after {} ms; to replay: KILLS={} KILLS_SEED={}", kill, victim,
                               after.count(), kill + 1, seed));
      const Report report = run_ranks(options, [&](Rank& rank) { body(rank, victim); });
      if (!report.passed) return;
      const Time fault = report.ranks[static_cast<std::size_t>(victim)].fault.value();
      verdicts.add(report, "failed", fault);
      retries.add(report, "retried", fault);
    }
    std::puts(fmt::format("{} kills in {}: verdict after {}; repeated call after {}", kills(), plan.phase,
                          verdicts.text(), retries.text())
                  .c_str());
  }

  // Calls until the victim is dead, then goes on without it.
  void kill_in_calls(const char* phase, const std::function<std::function<void()>(Communicator&)>& make_call) {
    kill_in({.phase = named(phase)}, [&](Rank& rank, int victim) {
      Communicator comm = rank.init();
      const auto call = make_call(comm);
      call();
      meet(rank, kWorld);
      rank.point("begin");
      const ErrorInfo failure = failure_of(rank, [&] {
        while (true) call();
      });
      EXPECT_EQ(failure.kind, ErrorKind::peer_lost) << failure.message;
      EXPECT_EQ(failure.peer, victim) << failure.message;
      go_on(rank, comm, kWorld - 1);
    });
  }

  // Shrinks until the group has that size and a sum of it ends well.
  static void go_on(Rank& rank, Communicator comm, int size) {
    std::vector<float> values(1'000);
    while (true) {
      try {
        comm = comm.shrink();
        do {
          std::ranges::fill(values, 1.0f);
          comm.all_reduce(values);
        } while (comm.size() > size);
        break;
      } catch (const Error& error) {
        ASSERT_NE(error.kind(), ErrorKind::aborted) << error.what();
      }
    }
    rank.point("retried");
    EXPECT_EQ(values[0], static_cast<float>(size));
    EXPECT_EQ(comm.size(), size);
    comm.barrier();
  }
};

// Ranks that start, then call until they fail. Those that did not start are lost to the others.
void start_and_fail(Rank& rank, InitOptions init) {
  std::optional<Communicator> comm;
  const ErrorInfo failure = failure_of(rank, [&] {
    comm = rank.init(init);
    while (true) comm->barrier();
  });
  const bool is_loss = failure.kind == ErrorKind::peer_lost || failure.kind == ErrorKind::deadline_exceeded ||
                       failure.kind == ErrorKind::aborted;
  EXPECT_TRUE(is_loss) << failure.message;
  if (!comm) return;
  Communicator rest = comm->shrink();
  EXPECT_LT(rest.size(), kWorld);
}

// The ranks of a job that does not get far meet at `server`, for a second.
InitOptions meets_at(const StoreServer& server, const Rank& rank) {
  InitOptions init = rank.options();
  init.store = connect_store(server.address());
  init.init_timeout = Milliseconds(1'000);
  return init;
}

// The last rank never comes, so that the others are still there when the victim dies.
TEST_P(Kills, in_the_rendezvous_give_every_other_rank_a_verdict) {
  const StoreServer server;
  kill_in({.phase = named("the rendezvous"), .within_ms = 300, .victim = 1}, [&server](Rank& rank, int) {
    if (rank.rank() == kWorld - 1) return;
    const InitOptions init = meets_at(server, rank);
    if (rank.rank() == 1) rank.point("begin");
    start_and_fail(rank, init);
  });
}

TEST_P(Kills, in_the_handshake_give_every_other_rank_a_verdict) {
  const StoreServer server;
  kill_in({.phase = named("the handshake")}, [&server](Rank& rank, int) {
    const InitOptions init = meets_at(server, rank);
    rank.point("begin");
    start_and_fail(rank, init);
  });
}

TEST_P(Kills, in_small_calls_leave_the_others_going_on) {
  kill_in_calls("small calls", [](Communicator& comm) {
    return [&comm] {
      std::vector<float> values(100, 1.0f);
      comm.all_reduce(values);
      EXPECT_EQ(values[99], kWorld);
    };
  });
}

TEST_P(Kills, in_calls_of_shared_buffers_leave_the_others_going_on) {
  kill_in_calls("calls of shared buffers", [](Communicator& comm) {
    return [&comm, values = comm.allocate<float>(1 << 20)] {
      std::ranges::fill(values, 1.0f);
      comm.all_reduce(std::span<float>(values));
      EXPECT_EQ(values[99], kWorld);
    };
  });
}

TEST_P(Kills, in_plans_leave_the_others_going_on) {
  kill_in_calls("plans", [](Communicator& comm) {
    return [&comm, values = std::vector<float>(1 << 20)]() mutable {
      std::ranges::fill(values, 1.0f);
      comm.all_reduce(values);
      EXPECT_EQ(values[99], kWorld);
    };
  });
}

// Rank 0 has been killed in a sum.
TEST_P(Kills, in_shrink_leave_the_others_going_on) {
  const Plan plan{.phase = named("shrink"),
                  .world = kWorld + 1,
                  .first = {{.rank = 0, .point = "summing", .after = Milliseconds(5)}},
                  .victim = 3};
  kill_in(plan, [](Rank& rank, int) {
    Communicator comm = rank.init();
    std::vector<float> values(1 << 20, 1.0f);
    meet(rank, kWorld + 1);
    rank.point("summing");
    const ErrorInfo failure = failure_of(rank, [&] {
      while (true) comm.all_reduce(values);
    });
    EXPECT_EQ(failure.peer, 0) << failure.message;
    rank.point("begin");
    go_on(rank, comm, kWorld - 1);
  });
}

// Grows until no more can die and all that live are in one group.
void grow_until_three(Rank& rank, Communicator comm) {
  constexpr std::chrono::milliseconds kAllKillsAreOver(700);
  const Time begin = std::chrono::steady_clock::now();
  bool has_failed = false, is_retry = false;
  while (true) {
    const Time now = std::chrono::steady_clock::now();
    ASSERT_LT(now, begin + std::chrono::seconds(20)) << "the survivors are not in one group, but " << comm.size();
    try {
      if (std::exchange(has_failed, false)) comm = comm.shrink({.timeout = Milliseconds(10'000)});
      std::vector<int> is_over{now > begin + kAllKillsAreOver ? 1 : 0};
      comm.all_reduce(is_over, {.op = ReduceOp::max});
      if (std::exchange(is_retry, false)) rank.point("retried");
      if (is_over[0] == 1 && comm.size() == kWorld - 1) break;
      comm = comm.grow();
    } catch (const Error& error) {
      ASSERT_NE(error.kind(), ErrorKind::misuse) << error.what();
      rank.point("failed");
      has_failed = is_retry = true;
    }
  }
  comm.barrier();
}

TEST_P(Kills, in_grow_leave_members_and_newcomers_in_one_group) {
  constexpr int kMembers = kWorld - 1;
  kill_in({.phase = named("grow"), .within_ms = 400}, [](Rank& rank, int) {
    if (rank.rank() < kMembers) {
      Communicator comm = start_member(rank, kMembers);
      meet(rank, kMembers);
      rank.point("begin");
      grow_until_three(rank, comm);
    } else {
      rank.point("begin");
      grow_until_three(rank, qccl::init(newcomer_options(rank, kMembers)));
    }
  });
}

TEST_P(Kills, in_close_leave_the_others_with_a_closed_group) {
  kill_in({.phase = named("close"), .within_ms = 8}, [](Rank& rank, int victim) {
    Communicator comm = rank.init();
    std::vector<float> values(1 << 18, 1.0f);
    comm.all_reduce(values);
    meet(rank, kWorld);
    rank.point("begin");
    for (int i = 0; i < 3; ++i) {
      try {
        comm.all_reduce(values);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::peer_lost) << error.what();
      }
    }
    comm.close();
    rank.point("failed");  // what takes long, if anything does
    if (rank.rank() == victim) ::pause();
  });
}

INSTANTIATE_TEST_SUITE_P(Over, Kills, both_transports(), transport_name);

}  // namespace
}  // namespace qccl::testing
