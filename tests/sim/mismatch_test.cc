// Calls that differ between ranks soon give every rank an error that names both calls and the odd rank;
// never a hang and never a result.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "support/sim_call.h"
#include "wire/frame.h"

namespace qccl::testing {
namespace {

using std::chrono::seconds;

struct Pair {
  const char* what;
  engine::ResolvedCall one;
  engine::ResolvedCall other;
};

engine::ResolvedCall all_reduce(std::uint64_t count, int world, const CallOptions& options = {},
                                DataType type = DataType::float32) {
  return make_call(Collective::all_reduce, count, type, world, options);
}

engine::ResolvedCall broadcast(std::uint64_t count, int world, int root, Algorithm algorithm = Algorithm::automatic) {
  return make_call(Collective::broadcast, count, DataType::float32, world, {.root = root, .algorithm = algorithm});
}

// `count` is small enough to be sent eagerly, or so large that everything waits for grants.
std::vector<Pair> differing_calls(int world, std::uint64_t count) {
  const auto base = all_reduce(count, world);
  const auto sra = all_reduce(count, world, {.algorithm = Algorithm::sra});
  const auto gather = make_call(Collective::all_gather, count, DataType::float32, world);
  const auto scatter = make_call(Collective::reduce_scatter, count, DataType::float32, world);
  const auto barrier = make_call(Collective::barrier, 0, DataType::uint8, world);
  auto in_shares = sra;
  for (int rank = 0; rank < world; ++rank) in_shares.shares.push_back(rank == 0 ? 50 : 100);
  std::vector<Pair> pairs = {
      {"count", base, all_reduce(count - 1, world)},
      {"no count", base, all_reduce(0, world)},
      {"type", base, all_reduce(count, world, {}, DataType::int32)},
      {"operation", base, all_reduce(count, world, {.op = ReduceOp::max})},
      {"codec", base, all_reduce(count, world, {.compression = minmax({.bits = 4})})},
      {"bits", all_reduce(count, world, {.compression = minmax({.bits = 5})}),
       all_reduce(count, world, {.compression = minmax({.bits = 4})})},
      {"bucket size", all_reduce(count, world, {.compression = minmax({.bits = 4, .bucket_size = 100})}),
       all_reduce(count, world, {.compression = minmax({.bits = 4, .bucket_size = 200})})},
      {"algorithm", sra, all_reduce(count, world, {.algorithm = Algorithm::one_shot})},
      {"shares", sra, in_shares},
      {"collective", base, gather},
      {"collective of the same size", base, scatter},
      {"gather and scatter", gather, scatter},
      {"barrier", base, barrier},
      {"barrier and nothing", barrier, all_reduce(0, world)},
      {"nothing of two kinds", all_reduce(0, world), broadcast(0, world, 0)},
      {"broadcast and all_reduce", broadcast(count, world, 1), base},
      {"broadcast and barrier", broadcast(count, world, 0), barrier},
  };
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::sra}) {
    pairs.push_back({"root 0 and 1", broadcast(count, world, 0, algorithm), broadcast(count, world, 1, algorithm)});
    pairs.push_back({"root 1 and 0", broadcast(count, world, 1, algorithm), broadcast(count, world, 0, algorithm)});
    pairs.push_back({"root 2 and 1", broadcast(count, world, 2, algorithm), broadcast(count, world, 1, algorithm)});
    pairs.push_back({"broadcast count", broadcast(count, world, 1, algorithm), broadcast(1, world, 1, algorithm)});
  }
  for (const auto collective : {Collective::reduce, Collective::gather, Collective::scatter, Collective::broadcast}) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      const auto rooted = [&](int root) {
        return make_call(collective, count, DataType::float32, world, {.root = root, .algorithm = algorithm});
      };
      pairs.push_back({"root 0 and 1", rooted(0), rooted(1)});
      pairs.push_back({"root 2 and 1", rooted(2), rooted(1)});
      pairs.push_back({"rooted and all_reduce", rooted(1), base});
    }
  }
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree, Algorithm::hierarchical}) {
    pairs.push_back({"algorithm", base, all_reduce(count, world, {.algorithm = algorithm})});
    pairs.push_back({"count", all_reduce(count, world, {.algorithm = algorithm}),
                     all_reduce(count + 1, world, {.algorithm = algorithm})});
  }
  return pairs;
}

void expect_named(const ErrorInfo& failure, const Pair& pair, int odd) {
  EXPECT_EQ(failure.kind, ErrorKind::misuse) << failure.message;
  EXPECT_EQ(failure.peer, odd) << failure.message;
  EXPECT_NE(failure.message.find(pair.one.describe()), std::string::npos) << failure.message;
  EXPECT_NE(failure.message.find(pair.other.describe()), std::string::npos) << failure.message;
  EXPECT_NE(failure.message.find(fmt::format("rank {} called {}", odd, pair.other.describe())), std::string::npos)
      << failure.message;
}

// Rank `odd` makes the other call. Every rank must fail at that call or at the next one, in little more
// than the second that the exchange of calls may take.
void expect_error_everywhere(const Pair& pair, int world_size, int odd) {
  SimWorld world(world_size, {.seed = static_cast<std::uint64_t>(odd) + 7});
  SimCall majority(world, world_group(world), pair.one);
  SimCall minority(world, world_group(world), pair.other);
  for (int rank = 0; rank < world_size; ++rank) (rank == odd ? minority : majority).post(rank);
  world.run_for(seconds(2));
  SimCall next(world, world_group(world), make_call(Collective::all_reduce, 10, DataType::float32, world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    const SimCall& first = rank == odd ? minority : majority;
    ASSERT_TRUE(first.done(rank)) << "hangs";
    next.post(rank);
    world.run_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(next.done(rank)) << "the next call goes on";
    ASSERT_TRUE(next.failure(rank)) << "the next call succeeds";
    expect_named(*next.failure(rank), pair, odd);
    if (first.failure(rank)) expect_named(*first.failure(rank), pair, odd);
  }
  world.settle();
  EXPECT_EQ(world.held_frames(), 0u) << "frames were not given back";
}

struct Setting {
  int world;
  std::uint64_t count;
};

class Mismatch : public ::testing::TestWithParam<Setting> {};

TEST_P(Mismatch, of_one_rank_is_an_error_everywhere_that_names_both_calls_and_the_rank) {
  const auto [world, count] = GetParam();
  for (Pair pair : differing_calls(world, count)) {
    for (int odd = 0; odd < world; ++odd) {
      SCOPED_TRACE(fmt::format("{}: rank {} of {} calls {} instead of {}", pair.what, odd, world, pair.other.describe(),
                               pair.one.describe()));
      expect_error_everywhere(pair, world, odd);
      std::swap(pair.one, pair.other);
      expect_error_everywhere(pair, world, odd);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Simulated, Mismatch, ::testing::Values(Setting{3, 1000}, Setting{5, 1000}, Setting{3, 60000}),
                         [](const auto& info) {
                           return fmt::format("world_{}_count_{}", info.param.world, info.param.count);
                         });

// What a rank says is on its way for longer than a second.
TEST(MismatchAtADistance, waits_for_what_every_rank_says) {
  SimWorld world(3, {.link = {.bytes_per_second = 1e9, .latency = std::chrono::milliseconds(1200)}});
  SimCall sums(world, world_group(world), all_reduce(1000, 3));
  SimCall maxima(world, world_group(world), all_reduce(1000, 3, {.op = ReduceOp::max}));
  for (int rank = 0; rank < 3; ++rank) (rank == 1 ? maxima : sums).post(rank, seconds(60));
  world.run_for(seconds(10));
  for (int rank = 0; rank < 3; ++rank) {
    const SimCall& call = rank == 1 ? maxima : sums;
    ASSERT_TRUE(call.done(rank) && call.failure(rank));
    EXPECT_EQ(call.failure(rank)->message.find("did not say"), std::string::npos) << call.failure(rank)->message;
    EXPECT_EQ(call.failure(rank)->peer, 1) << call.failure(rank)->message;
  }
}

TEST(MismatchOfTwo, names_both_calls_and_blames_nobody) {
  SimWorld world(2);
  SimCall sum(world, world_group(world), make_call(Collective::all_reduce, 64, DataType::float32, 2));
  SimCall max(world, world_group(world),
              make_call(Collective::all_reduce, 64, DataType::float32, 2, {.op = ReduceOp::max}));
  sum.post(0);
  max.post(1);
  world.run_for(seconds(2));
  for (const ErrorInfo& failure : {*sum.failure(0), *max.failure(1)}) {
    EXPECT_EQ(failure.kind, ErrorKind::misuse);
    EXPECT_EQ(failure.peer, -1) << "no majority";
    EXPECT_NE(failure.message.find("rank 0 called all_reduce(count=64, float32, sum)"), std::string::npos)
        << failure.message;
    EXPECT_NE(failure.message.find("rank 1 called all_reduce(count=64, float32, max)"), std::string::npos)
        << failure.message;
  }
}

TEST(MismatchOfTwo, roots_that_wait_for_nobody_are_an_error_on_both) {
  for (const std::uint64_t count : {8, 60000}) {
    for (const bool crossed : {false, true}) {
      SimWorld world(2);
      SimCall zero(world, world_group(world), broadcast(count, 2, 0));
      SimCall one(world, world_group(world), broadcast(count, 2, 1));
      (crossed ? one : zero).post(0);
      (crossed ? zero : one).post(1);
      world.run_for(seconds(2));
      SimCall next(world, world_group(world), make_call(Collective::barrier, 0, DataType::uint8, 2));
      next.post_all();
      world.run_for(std::chrono::milliseconds(1));
      for (int rank = 0; rank < 2; ++rank) {
        ASSERT_TRUE(next.done(rank)) << "count " << count << " crossed " << crossed;
        EXPECT_EQ(next.failure(rank)->kind, ErrorKind::misuse) << next.failure(rank)->message;
      }
    }
  }
}

// A frame that no honest peer sends.
TEST(DamagedFrame, is_an_error_that_names_its_senders_rank_in_the_world) {
  for (const auto kind : {wire::FrameKind::data, wire::FrameKind::grant}) {
    SimWorld world(6);
    const SimGroup pair{.id = 7, .ranks = {2, 5}};
    world.open_group(pair.id, "pair", pair.ranks);
    bool hit = false;
    world.network().set_tap([&](int from, int, Bytes frame) {
      auto header = wire::decode_header(frame.data()).value();
      if (from != 5 || header.kind != kind || hit) return;
      hit = true;
      header.chunk += 9;
      wire::encode_header(header, frame.data());
    });
    SimCall call(world, pair, all_reduce(60000, 2, {.algorithm = Algorithm::sra}));
    call.post_all();
    world.run_for(seconds(1));
    ASSERT_TRUE(hit && call.done(0) && call.failure(0));
    EXPECT_EQ(call.failure(0)->kind, ErrorKind::corrupt_data);
    EXPECT_NE(call.failure(0)->message.find(": rank 5 "), std::string::npos) << call.failure(0)->message;
    world.settle();
    EXPECT_EQ(world.held_frames(), 0u);
  }
}

TEST(MismatchOfCounts, of_two_ranks_in_an_exchange_is_an_error_everywhere_that_names_both) {
  for (const std::uint64_t length : {0, 10, 60000}) {
    for (const std::uint64_t expected : {length + 1, length + 90000}) {
      SimWorld world(3);
      std::deque<SimCall> calls;
      for (int rank = 0; rank < 3; ++rank) {
        std::vector<std::uint64_t> counts(6, 5);
        if (rank == 0) counts[2] = length;        // to rank 2
        if (rank == 2) counts[3 + 0] = expected;  // from rank 0
        const auto call = resolve_call(Collective::all_to_all, counts, DataType::float32, 3);
        calls.emplace_back(world, world_group(world), call.value());
        calls.back().post(rank);
      }
      world.run_for(seconds(2));
      for (int rank = 0; rank < 3; ++rank) {
        SimCall next(world, world_group(world), make_call(Collective::barrier, 0, DataType::uint8, 3));
        next.post(rank);
        world.run_for(std::chrono::milliseconds(1));
        ASSERT_TRUE(next.done(rank)) << "rank " << rank << " hangs";
        EXPECT_EQ(next.failure(rank)->kind, ErrorKind::misuse);
        const std::string& message = next.failure(rank)->message;
        for (const std::uint64_t count : {length, expected}) {
          EXPECT_NE(message.find(fmt::format(" {}", count)), std::string::npos) << message;
        }
      }
    }
  }
}

// Frames have 32 bits for a chunk: lengths that are equal in those bits must differ in another field.
TEST(MismatchOfCounts, by_a_multiple_of_2_to_the_32_is_an_error_that_names_both) {
  constexpr std::uint64_t kWrap = std::uint64_t{1} << 32;
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> lengths = {
      {100'000 + kWrap, 100'000}, {100'000, 100'000 + kWrap}, {5, 5 + kWrap}, {5 + 3 * kWrap, 5 + kWrap}};
  for (const auto& [sent, expected] : lengths) {
    SCOPED_TRACE(fmt::format("{} sent, {} expected", sent, expected));
    SimWorld world(2);
    std::vector<std::byte> memory(4 << 20);  // more than the calls touch before the error
    std::vector<SimWork> works;
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<std::uint64_t> counts(4, 0);
      if (rank == 0) counts[1] = sent;
      if (rank == 1) counts[2 + 0] = expected;
      const auto call = resolve_call(Collective::all_to_all, counts, DataType::uint8, 2);
      works.push_back(world.post(rank, call.value(), {memory.data(), memory.data() + memory.size() / 2}));
    }
    ASSERT_TRUE(world.run(works, seconds(2))) << "hangs";
    for (const SimWork& work : works) {
      ASSERT_TRUE(work->failure());
      EXPECT_EQ(work->failure()->kind, ErrorKind::misuse) << work->failure()->message;
      for (const std::uint64_t count : {sent, expected}) {
        EXPECT_NE(work->failure()->message.find(fmt::format(" {}", count)), std::string::npos)
            << work->failure()->message;
      }
    }
  }
}

TEST(MismatchOfCounts, of_one_rank_is_an_error_that_shows_both_lists) {
  for (const Collective collective :
       {Collective::all_gather, Collective::reduce_scatter, Collective::gather, Collective::scatter}) {
    SimWorld world(3);
    const auto counted = [&](std::vector<std::uint64_t> counts) {
      return resolve_call(collective, counts, DataType::float32, 3).value();
    };
    SimCall majority(world, world_group(world), counted({4, 0, 9}));
    SimCall minority(world, world_group(world), counted({4, 1, 9}));
    for (int rank = 0; rank < 3; ++rank) (rank == 1 ? minority : majority).post(rank);
    world.run_for(seconds(2));
    SimCall next(world, world_group(world), make_call(Collective::barrier, 0, DataType::uint8, 3));
    next.post_all();
    world.run_for(std::chrono::milliseconds(1));
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(next.done(rank)) << to_string(collective);
      EXPECT_EQ(next.failure(rank)->kind, ErrorKind::misuse);
      EXPECT_NE(next.failure(rank)->message.find("[4 0 9]"), std::string::npos) << next.failure(rank)->message;
      EXPECT_NE(next.failure(rank)->message.find("[4 1 9]"), std::string::npos) << next.failure(rank)->message;
    }
  }
}

TEST(MismatchOfSettings, other_slice_sizes_on_one_rank_are_an_error_that_names_them) {
  for (const std::uint64_t count : {0, 10, 3000, 60000}) {
    SimWorld world(3, {.slice_bytes_of_rank = {kDefaultSliceBytes, 4096, kDefaultSliceBytes}});
    const auto collective = count == 0 ? Collective::barrier : Collective::all_reduce;
    SimCall call(world, world_group(world), make_call(collective, count, DataType::float32, 3));
    call.post_all();
    world.run_for(seconds(2));
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(call.done(rank)) << "hangs";
      ASSERT_TRUE(call.failure(rank));
      EXPECT_EQ(call.failure(rank)->kind, ErrorKind::misuse);
      EXPECT_EQ(call.failure(rank)->peer, 1);
      EXPECT_NE(call.failure(rank)->message.find("slice_bytes=4096"), std::string::npos) << call.failure(rank)->message;
    }
  }
}

TEST(MismatchOfFour, without_a_majority_blames_nobody_on_any_rank) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SimWorld world(4, {.seed = seed});
    SimCall sum(world, world_group(world), make_call(Collective::all_reduce, 64, DataType::float32, 4));
    SimCall max(world, world_group(world),
                make_call(Collective::all_reduce, 64, DataType::float32, 4, {.op = ReduceOp::max}));
    for (int rank = 0; rank < 4; ++rank) (rank < 2 ? sum : max).post(rank);
    world.run_for(seconds(2));
    for (int rank = 0; rank < 4; ++rank) {
      const ErrorInfo& failure = *(rank < 2 ? sum : max).failure(rank);
      EXPECT_EQ(failure.peer, -1) << failure.message;
      EXPECT_NE(failure.message.find("ranks 0, 1 called"), std::string::npos) << failure.message;
      EXPECT_NE(failure.message.find("ranks 2, 3 called"), std::string::npos) << failure.message;
    }
  }
}

TEST(MismatchOfThree, roots_that_all_differ_are_an_error_everywhere) {
  SimWorld world(3);
  std::deque<SimCall> calls;
  for (int rank = 0; rank < 3; ++rank) {
    calls.emplace_back(world, world_group(world), broadcast(8, 3, (rank + 1) % 3));
    calls.back().post(rank);
  }
  world.run_for(seconds(2));
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(calls[static_cast<std::size_t>(rank)].done(rank)) << "rank " << rank << " hangs";
    EXPECT_EQ(calls[static_cast<std::size_t>(rank)].failure(rank)->kind, ErrorKind::misuse);
  }
}

TEST(MismatchWithAbsentRank, does_not_wait_for_a_rank_that_has_not_called) {
  SimWorld world(3);
  SimCall small(world, world_group(world), make_call(Collective::all_reduce, 10, DataType::float32, 3));
  SimCall large(world, world_group(world), make_call(Collective::all_reduce, 11, DataType::float32, 3));
  small.post(0);
  large.post(1);
  world.run_for(seconds(2));
  ASSERT_TRUE(small.done(0) && large.done(1));
  EXPECT_EQ(small.failure(0)->kind, ErrorKind::misuse);
  EXPECT_NE(small.failure(0)->message.find("rank 2 did not say"), std::string::npos) << small.failure(0)->message;
  small.post(2);
  world.run_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(small.done(2)) << "the rank that comes late must see the failure";
  EXPECT_EQ(small.failure(2)->kind, ErrorKind::misuse);
  world.settle();
  EXPECT_EQ(world.held_frames(), 0u);
}

// A rank omits one call, so its next call has the number of the omitted one.
TEST(MismatchOfOrder, a_call_left_out_is_an_error_everywhere) {
  SimWorld world(3);
  SimCall first(world, world_group(world), make_call(Collective::all_reduce, 10, DataType::float32, 3));
  SimCall second(world, world_group(world), make_call(Collective::all_gather, 10, DataType::float32, 3));
  for (const int rank : {0, 2}) first.post(rank);
  second.post_all();
  world.run_for(seconds(2));
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(second.done(rank)) << "rank " << rank;
    ASSERT_TRUE(second.failure(rank));
    EXPECT_EQ(second.failure(rank)->sequence, 1u);
    EXPECT_EQ(second.failure(rank)->peer, 1);
  }
}

// More operations are in flight than past calls are remembered: the oldest must still be compared.
TEST(MismatchOfMany, is_seen_however_many_operations_are_in_flight) {
  SimWorld world(2);
  std::deque<SimCall> calls;
  const auto sum = make_call(Collective::all_reduce, 16, DataType::float32, 2);
  const auto max = make_call(Collective::all_reduce, 16, DataType::float32, 2, {.op = ReduceOp::max});
  for (int i = 0; i < 1500; ++i) {
    calls.emplace_back(world, world_group(world), sum);
    calls.back().post(0);
  }
  SimCall odd(world, world_group(world), max);
  odd.post(1);
  world.run_for(seconds(3));
  ASSERT_TRUE(calls.front().done(0)) << "hangs";
  ASSERT_TRUE(calls.front().failure(0)) << "a sum with a maximum gave a result";
  EXPECT_EQ(calls.front().failure(0)->kind, ErrorKind::misuse);
  EXPECT_NE(calls.front().failure(0)->message.find(max.describe()), std::string::npos)
      << calls.front().failure(0)->message;
}

}  // namespace
}  // namespace qccl::testing
