// Rounds of the outer loop as the program sees them: when they begin, how long ranks wait, what they send.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "extras/train/outer/state.h"
#include "support/error_of.h"
#include "support/transports.h"
#include "threads/outer/trained_model.h"

namespace qccl::testing {
namespace {

class OuterRounds : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, OuterRounds, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

// Without a blend, parameters are read only where a round begins.
TEST_P(OuterRounds, program_is_told_before_a_step_whether_it_begins_one) {
  for (const std::uint64_t delay : {0u, 1u, 3u, 4u}) {  // 4: a round ends in the step in which the next one begins
    expect_success(2, [=](Communicator& comm) {
      TrainedModel own(comm.rank());
      auto parameters = own.parameters();
      int reads = 0;
      for (auto& parameter : parameters) {
        parameter.load = [&reads, load = parameter.load](std::span<float> to) {
          ++reads;
          load(to);
        };
      }
      OuterLoop outer(comm, parameters, {.every = 8, .fragments = 2, .delay = delay});
      int begun = 0;
      for (int step = 1; step <= 30; ++step) {
        const bool begins = outer.begins_round();
        reads = 0;
        outer.step();
        EXPECT_EQ(begins, reads > 0) << "delay " << delay << ", step " << step;
        begun += begins ? 1 : 0;
      }
      EXPECT_EQ(begun, 7);
    });
  }
}

struct Stamps {
  const SteadyClock clock{};
  std::vector<std::int64_t> begun, ended;

  std::int64_t now() const { return clock.now().time_since_epoch().count(); }
  // The parameters are read when a round begins, and written when it ends.
  OuterParameter parameter(std::vector<float>& values) {
    OuterParameter watched = OuterParameter::of("x", values);
    watched.load = [this, load = watched.load](std::span<float> to) {
      begun.push_back(now());
      load(to);
    };
    watched.store = [this, store = watched.store](std::span<const float> from) {
      store(from);
      ended.push_back(now());
    };
    return watched;
  }
};

// Without a delay, everything from a round's begin to its end lies within one call of step().
TEST_P(OuterRounds, seconds_waited_hold_all_of_a_call_with_its_copies_and_with_aborted_calls) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> values(200'000, 1.0F);
    Stamps stamps;
    OuterLoop outer(comm, {stamps.parameter(values)}, {.every = 1});
    stamps.begun.clear();
    stamps.ended.clear();
    for (int step = 0; step < 6; ++step) {
      std::thread breaker;
      if (step == 3 && comm.rank() == 0) {
        breaker = std::thread([group = outer.group()]() mutable { group.abort("a test"); });
      }
      values[0] += 1;
      outer.step();
      if (breaker.joinable()) breaker.join();
    }
    ASSERT_EQ(outer.history().size(), 6u);
    ASSERT_EQ(stamps.begun.size(), 6u);
    for (std::size_t i = 0; i < 6; ++i) {
      const train::OuterRound& round = outer.history()[i];
      EXPECT_GE(round.seconds_waited, 1e-9 * static_cast<double>(stamps.ended[i] - stamps.begun[i])) << i;
      EXPECT_LE(round.seconds_waited, round.seconds) << i;
    }
  });
}

TEST_P(OuterRounds, seconds_waited_hold_the_time_from_an_error_to_the_next_call) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> values(1000, 1.0F);
    Stamps stamps;
    OuterLoop outer(comm, {stamps.parameter(values)}, {.every = 1, .go_on = false});
    stamps.begun.clear();
    stamps.ended.clear();
    Communicator next = comm.dup();
    if (comm.rank() == 0) Communicator(outer.group()).abort("a test");
    EXPECT_EQ(error_of([&] { outer.step(); }).kind, ErrorKind::aborted);
    for (const std::int64_t end = stamps.now() + 20'000'000; stamps.now() < end;) {
    }
    outer.regroup(next);
    ASSERT_EQ(outer.history().size(), 1u);
    EXPECT_GE(outer.history()[0].seconds_waited, 1e-9 * static_cast<double>(stamps.ended[0] - stamps.begun[0]));
    EXPECT_LE(outer.history()[0].seconds_waited, outer.history()[0].seconds);
  });
}

TEST_P(OuterRounds, seconds_waited_hold_what_a_program_does_after_begin_waiting) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> values(100, 1.0F);
    Stamps stamps;
    OuterLoop outer(comm, {OuterParameter::of("x", values)}, {.every = 1});
    for (int step = 0; step < 3; ++step) {
      outer.begin_waiting();
      const std::int64_t begin = stamps.now();
      comm.barrier();
      const std::int64_t end = stamps.now();
      outer.step();
      EXPECT_GE(outer.history().back().seconds_waited, 1e-9 * static_cast<double>(end - begin));
      EXPECT_LE(outer.history().back().seconds_waited, outer.history().back().seconds);
    }
  });
}

TEST_P(OuterRounds, bytes_of_a_round_count_on_in_a_group_of_another_context) {
  const auto store = std::make_shared<MemoryStore>();
  expect_success(2, [&](Communicator& comm) {
    InitOptions init;
    init.rank = comm.rank();
    init.world = 2;
    init.store = store;
    init.transport = GetParam();
    Communicator other = qccl::init(init);
    const auto sent = [](const Communicator& group) {
      const Traffic traffic = group.traffic();
      return traffic.payload_bytes_sent + traffic.header_bytes_sent + traffic.shared_bytes_sent;
    };
    std::vector<float> values(100'000, 1.0F);
    comm.all_reduce(values);  // the old context has sent more than the new one
    train::OuterJournal journal;
    journal.begin(comm);
    journal.move(comm, other);
    const std::uint64_t before = sent(other);
    std::vector<float> few(10, 1.0F);
    other.all_reduce(few);
    other.barrier();
    journal.add({}, other);
    EXPECT_GE(journal.rounds.back().bytes, 1u);
    EXPECT_LT(journal.rounds.back().bytes, 100'000u) << before;
    comm.barrier();
  });
}

// Momentum and global values of 14,071 float32 are 113 kB; a broadcast to both others would send them twice.
TEST_P(OuterRounds, state_is_sent_to_the_rank_that_joins_alone) {
  expect_success(3, [](Communicator& comm) {
    TrainedModel own(comm.rank());
    const OuterOptions options{.every = 2, .compression = block_int({.bits = 4})};
    auto members = comm.split(comm.rank() < 2 ? 0 : -1);
    std::optional<OuterLoop> outer;
    if (members) {
      outer.emplace(*members, own.parameters(), options);
      for (int step = 0; step < 4; ++step) outer->step();
    }
    const std::uint64_t before = comm.traffic().payload_bytes_sent;
    if (members) {
      outer->regroup(comm);
    } else {
      outer.emplace(comm, own.parameters(), options);
    }
    std::vector<std::uint64_t> sent{comm.traffic().payload_bytes_sent - before};
    comm.all_reduce(sent);
    EXPECT_GT(sent[0], 56'000u);
    EXPECT_LT(sent[0], 150'000u);
    expect_same_bits(comm, *outer);
  });
}

}  // namespace
}  // namespace qccl::testing
