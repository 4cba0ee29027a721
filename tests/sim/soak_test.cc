// Random worlds, groups, collectives, sizes, networks and posting times, from a seed. A failure
// prints the seed and the command that replays it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "support/long_run.h"
#include "support/sim_call.h"

namespace qccl::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

constexpr std::uint64_t kFirstSeed = 20260701;
constexpr int kRounds = 200;
constexpr int kRoundsATest = 50;

class Round {
 public:
  explicit Round(std::uint64_t seed) : random_(seed), world_(draw_world_size(), draw_options(seed)) {}

  // Returns what went wrong, or "".
  std::string run() {
    open_groups();
    const int calls = static_cast<int>(1 + random_.below(25));
    for (int i = 0; i < calls; ++i) add_call();
    post_in_random_order();
    if (!world_.run(works_of(calls_), seconds(60))) return "does not end";
    for (const SimCall& call : calls_) {
      if (const std::string problem = call.verify(); !problem.empty()) return problem;
    }
    world_.settle();
    return world_.held_frames() == 0 ? "" : fmt::format("{} frames were not given back", world_.held_frames());
  }

 private:
  int draw_world_size() { return static_cast<int>(1 + random_.below(9)); }

  SimOptions draw_options(std::uint64_t seed) {
    SimOptions options{.seed = seed};
    options.link.bytes_per_second = random_.below(3) == 0 ? 0 : random_.uniform(1e7, 1e10);
    options.link.latency = microseconds(random_.below(200));
    options.link.jitter = microseconds(random_.below(4) == 0 ? 0 : random_.below(3000));
    options.link.slots = 1 + random_.below(80);
    options.slice_bytes = std::size_t{4096} << random_.below(7);
    if (random_.below(3) == 0) options.window_bytes = std::uint64_t{1} << (14 + random_.below(12));
    return options;
  }

  // The world's group, and some random subsets in random order.
  void open_groups() {
    groups_.push_back(world_group(world_));
    const std::uint64_t subgroups = random_.below(4);
    for (std::uint64_t i = 0; i < subgroups; ++i) {
      std::vector<int> ranks = groups_[0].ranks;
      for (std::size_t j = ranks.size() - 1; j > 0; --j) std::swap(ranks[j], ranks[random_.below(j + 1)]);
      ranks.resize(1 + random_.below(ranks.size()));
      groups_.push_back({100 + i, ranks});
      world_.open_group(100 + i, fmt::format("subgroup {}", i), ranks);
    }
  }

  std::uint64_t draw_count() {
    switch (random_.below(4)) {
      case 0: return random_.below(10);
      case 1: return random_.below(1000);
      case 2: return random_.below(10000);
      default: return random_.below(60000);
    }
  }

  Compression draw_codec() {
    if (random_.below(4) == 0) return cast(random_.below(2) == 0 ? DataType::bfloat16 : DataType::float16);
    const int bits = random_.pick(std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 16, 32});
    const auto bucket_size = static_cast<std::uint32_t>(1 + random_.below(random_.below(2) == 0 ? 300 : 65536));
    return minmax({.bits = bits, .bucket_size = bucket_size});
  }

  void add_call() {
    const SimGroup& group = random_.pick(groups_);
    const auto collective = static_cast<Collective>(random_.below(9));
    CallOptions options;
    auto type = kTypes[random_.below(kTypes.size())];
    const bool reduces = is_reduction(collective);
    if (is_rooted(collective)) options.root = static_cast<int>(random_.below(group.ranks.size()));
    if (reduces) {
      do {
        options.op = kOps[random_.below(kOps.size())];
      } while (!supports(type, options.op));
    }
    if (reduces && random_.below(3) == 0) {
      options.compression = draw_codec();
      options.op = random_.pick(std::vector<ReduceOp>{ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum});
      type = random_.pick(std::vector<DataType>{DataType::float32, DataType::float16, DataType::bfloat16});
    }
    const auto algorithms = plan::algorithms_of(collective);
    // Products in an order other than rank order have no stated bound.
    const bool rounds = reduces && options.op == ReduceOp::prod && is_floating(type);
    if (rounds) {
      options.algorithm = Algorithm::one_shot;
    } else if (random_.below(3) > 0) {
      options.algorithm = algorithms[random_.below(algorithms.size())];
    }
    const std::uint64_t count = collective == Collective::barrier ? 0 : draw_count();
    const Placement placement{
        .in_place = random_.below(2) == 0, .input_offset = random_.below(16), .output_offset = random_.below(16)};
    calls_.emplace_back(world_, group, make_call(collective, count, type, group.size(), options),
                        SimCall::Data{random_.pick(kPatterns), random_.next(), placement});
  }

  // Each rank keeps the order within a group; across groups and ranks the order is random.
  void post_in_random_order() {
    std::vector<std::pair<std::size_t, int>> pending;  // call and member
    for (std::size_t call = 0; call < calls_.size(); ++call) {
      for (int member = 0; member < calls_[call].group().size(); ++member) pending.emplace_back(call, member);
    }
    while (!pending.empty()) {
      const auto [call, member] = pending[random_.below(pending.size())];
      // The earliest of that group and member goes first.
      const auto first =
          std::find_if(pending.begin(), pending.end(), [&, call = call, member = member](const auto& each) {
            return each.second == member && calls_[each.first].group().id == calls_[call].group().id;
          });
      calls_[first->first].post(first->second, seconds(50));
      pending.erase(first);
      if (random_.below(3) == 0) world_.run_for(microseconds(random_.below(300)));
    }
  }

  Random random_;
  SimWorld world_;
  std::vector<SimGroup> groups_;
  std::deque<SimCall> calls_;
};

std::string replay(std::uint64_t seed) {
  return fmt::format("to replay: SOAK_SEED={} build/tests/qccl_test_sim --gtest_filter=SoakRound.*", seed);
}

class Soak : public ::testing::TestWithParam<int> {};

TEST_P(Soak, of_random_rounds_ends_right) {
  for (int i = 0; i < kRoundsATest; ++i) {
    const std::uint64_t seed = kFirstSeed + static_cast<std::uint64_t>(GetParam() + i);
    ASSERT_EQ(Round(seed).run(), "") << replay(seed);
  }
}

INSTANTIATE_TEST_SUITE_P(Simulated, Soak, ::testing::Range(0, kRounds, kRoundsATest),
                         [](const auto& info) { return fmt::format("from_{}", info.param); });

TEST(SoakRound, of_the_seed_in_the_environment_ends_right) {
  const std::uint64_t seed = environment_number("SOAK_SEED", kFirstSeed);
  EXPECT_EQ(Round(seed).run(), "") << replay(seed);
}

}  // namespace
}  // namespace qccl::testing
