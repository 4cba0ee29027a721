// CallOptions::keep_input over the simulated network: a rank is killed at any frame of a call in place, of every
// collective and algorithm, compressed or not. Where the call fails, its input is what it was before.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "plan/algorithms/registry.h"
#include "support/sim_call.h"

namespace qccl::testing {
namespace {

using std::chrono::seconds;

ByteVector draw_values(Random& random, const engine::ResolvedCall& call, int world, int rank) {
  std::vector<float> values(engine::input_elements(call, world, rank));
  for (float& value : values) value = static_cast<float>(random.uniform(-1, 1));
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  return {bytes, bytes + values.size() * sizeof(float)};
}

class KilledCall {
 public:
  explicit KilledCall(std::uint64_t seed)
      : random_(seed),
        world_(static_cast<int>(2 + random_.below(5)),
               {.seed = seed, .slice_bytes = 8192, .hosts = {0, 0, 1, 1, 2, 2}}),
        call_(draw_call()) {}

  // Returns what went wrong, or "".
  std::string run() {
    for (int rank = 0; rank < world_.size(); ++rank) {
      inputs_.push_back(draw_values(random_, call_, world_.size(), rank));
      buffers_.emplace_back(call_, rank, world_.size(), inputs_.back(), Placement{.in_place = true});
    }
    std::uint64_t frames_left = 1 + random_.below(random_.below(2) == 0 ? 30 : 300);
    world_.network().set_tap([&](int, int, Bytes) {
      if (--frames_left == 0) world_.network().kill(static_cast<int>(random_.below(at(world_.size()))));
    });
    for (int rank = 0; rank < world_.size(); ++rank) {
      RankBuffers& own = buffers_[at(rank)];
      works_.push_back(
          world_.post(rank, call_, {.input = own.input(), .output = own.output(), .keep_input = is_source(rank)}));
    }
    const auto have_ended = [this] {
      return std::ranges::all_of(ranks(), [this](int rank) { return has_died(rank) || works_[at(rank)]->done(); });
    };
    if (!world_.run_until(have_ended, seconds(60))) return "a call hangs";
    for (const int rank : ranks()) {
      if (has_died(rank) || !works_[at(rank)]->failure() || !is_source(rank)) continue;
      ++failures_;
      if (!std::equal(inputs_[at(rank)].begin(), inputs_[at(rank)].end(), buffers_[at(rank)].input())) {
        return fmt::format("{}: rank {} lost its input", call_.describe(), rank);
      }
    }
    return "";
  }

  int failures() const { return failures_; }

 private:
  template <class Number>
  static std::size_t at(Number rank) {
    return static_cast<std::size_t>(rank);
  }
  std::vector<int> ranks() const { return world_group(world_).ranks; }
  bool has_died(int rank) { return !world_.network().running(rank); }
  // A broadcast's other ranks have no input.
  bool is_source(int rank) const { return call_.collective != Collective::broadcast || rank == call_.root; }

  engine::ResolvedCall draw_call() {
    static const std::vector<Collective> kCollectives{Collective::all_reduce, Collective::reduce_scatter,
                                                      Collective::reduce, Collective::all_gather,
                                                      Collective::broadcast};
    const Collective collective = random_.pick(kCollectives);
    const auto algorithms = plan::algorithms_of(collective);
    CallOptions options{.root = static_cast<int>(random_.below(at(world_.size()))),
                        .algorithm = algorithms[random_.below(algorithms.size())]};
    if (random_.below(2) == 0) options.compression = minmax({.bits = 3, .bucket_size = 64});
    if (is_reduction(collective) && random_.below(3) == 0) options.op = ReduceOp::premul_sum;
    return make_call(collective, 1 + random_.below(20'000), DataType::float32, world_.size(), options);
  }

  Random random_;
  SimWorld world_;
  const engine::ResolvedCall call_;
  std::vector<ByteVector> inputs_;
  std::deque<RankBuffers> buffers_;
  std::vector<SimWork> works_;
  int failures_ = 0;
};

TEST(KeepInput, gives_a_failed_call_its_input_back) {
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    KilledCall call(seed);
    ASSERT_EQ(call.run(), "") << "seed " << seed;
    failures += call.failures();
  }
  EXPECT_GT(failures, 400);
}

}  // namespace
}  // namespace qccl::testing
