// Error feedback inside collectives: nothing is lost, with any codec, algorithm, world, type and operation, and the
// cumulative error decays with the square of the number of calls.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "codec/registry.h"
#include "plan/plan.h"
#include "support/noisy_codec.h"
#include "support/reference.h"
#include "support/sim_collective.h"

namespace qccl::testing {
namespace {

using Values = std::vector<long double>;

// Every codec of the library with its defaults, and settings that are hard on error feedback.
std::vector<Compression> codecs() {
  std::vector<Compression> all = {minmax({.bits = 1, .bucket_size = 7}), minmax({.bits = 2, .bucket_size = 64}),
                                  minmax({.bits = 3, .bucket_size = 1000}), cast(DataType::float16)};
  for (const char* spec : {"minmax:bits=3,rounding=stochastic", "int:bits=2,rounding=stochastic"}) {
    all.push_back(Compression::parse(spec));
  }
  for (const CodecEntry* entry : codec_list().subspan(1)) {
    all.push_back(parse_compression(entry->name).take_or_throw());
  }
  return all;
}

std::vector<int> hosts_of_two(int world) {
  std::vector<int> hosts;
  for (int rank = 0; rank < world; ++rank) hosts.push_back(rank / 2);
  return hosts;
}

// Calls of one kind with the states of all ranks, and the balance of inputs and outputs so far, in units of the sum.
class Account {
 public:
  // Without `states` the residuals are zero at first.
  Account(engine::ResolvedCall call, int world, SimOptions options, std::vector<ErrorFeedback> states = {})
      : call_(std::move(call)),
        world_(world),
        count_(engine::input_elements(call_, world, 0)),
        balance_(count_),
        states_(std::move(states)),
        sim_(world, with_states(std::move(options))) {}

  // Makes `steps` calls with inputs drawn from the seed.
  void run(int steps, std::uint64_t seed) {
    Random random(seed);
    for (int step = 0; step < steps; ++step) {
      std::vector<ByteVector> inputs;
      for (int rank = 0; rank < world_; ++rank) inputs.push_back(draw(random, rank));
      const CollectiveResult outcome = run_collective(sim_, call_, inputs, {.in_place = step % 2 == 0});
      ASSERT_EQ(outcome.problem, "");
      subtract(outcome.outputs);
    }
  }

  // The largest loss of an element: inputs + first residuals - outputs - last residuals.
  long double largest_loss() const {
    Values lacking = balance_;
    for (const ErrorFeedback& state : states_) {
      for (std::size_t i = 0; i < count_; ++i) lacking[i] -= state.residual()[i];
    }
    long double most = 0;
    for (const long double x : lacking) most = std::fmax(most, std::fabs(x));
    return most;
  }
  // The same without the last residuals: how far the outputs are behind.
  const Values& behind() const { return balance_; }
  long double magnitude() const {
    long double most = largest_;
    for (const ErrorFeedback& state : states_) {
      for (const float x : state.residual()) most = std::fmax(most, std::fabs(x));
    }
    return most;
  }
  std::vector<ErrorFeedback>& states() { return states_; }

 private:
  SimOptions with_states(SimOptions options) {
    while (states_.size() < static_cast<std::size_t>(world_)) states_.emplace_back(count_);
    for (const ErrorFeedback& state : states_) {
      for (std::size_t i = 0; i < count_; ++i) balance_[i] += state.residual()[i];
    }
    options.feedback = states_;
    return options;
  }

  ByteVector draw(Random& random, int rank) {
    ByteVector input(count_ * element_bytes(call_.type));
    const long double factor = call_.op == ReduceOp::premul_sum ? premul_factor_of(rank) : 1;
    for (std::size_t i = 0; i < count_; ++i) {
      set_element(call_.type, input.data(), i, random.normal() + 0.3 * rank);
      balance_[i] += factor * element(call_.type, input, i);
    }
    return input;
  }

  void subtract(const std::vector<ByteVector>& outputs) {
    const long double world = call_.op == ReduceOp::avg ? world_ : 1;
    std::uint64_t begin = 0;
    const auto take = [&](int rank) {
      const std::uint64_t elements = engine::output_elements(call_, world_, rank);
      for (std::size_t i = 0; i < elements; ++i) {
        const long double value = world * element(call_.type, outputs[static_cast<std::size_t>(rank)], i);
        balance_[begin + i] -= value;
        largest_ = std::fmax(largest_, std::fabs(value));
      }
      begin += elements;
    };
    if (call_.collective == Collective::all_reduce) {
      for (const ByteVector& output : outputs) ASSERT_EQ(output, outputs[0]);
      take(0);
    } else if (call_.collective == Collective::reduce) {
      take(call_.root);
    } else {
      for (int rank = 0; rank < world_; ++rank) take(rank);
    }
  }

  const engine::ResolvedCall call_;
  const int world_;
  const std::size_t count_;
  Values balance_;
  long double largest_ = 1;
  std::vector<ErrorFeedback> states_;
  SimWorld sim_;
};

engine::ResolvedCall call_of(Collective collective, std::uint64_t count, int world, CallOptions options,
                             DataType type = DataType::float32) {
  const std::uint64_t inputs =
      collective == Collective::reduce_scatter ? count * static_cast<std::uint64_t>(world) : count;
  options.error_feedback = ErrorFeedback(inputs);
  return make_call(collective, count, type, world, options);
}

// Each call rounds sums of `world` parts and a residual in float32, and with a 16-bit type also the result.
long double allowance(const engine::ResolvedCall& call, int world, int steps, long double magnitude) {
  const long double rounding = call.type == DataType::float32 ? 0 : half_spacing(call.type, magnitude) * world;
  return steps * (rounding + 4 * world * magnitude * 0x1p-24L);
}

class Feedback : public ::testing::TestWithParam<int> {
 protected:
  void expect_conserved(const engine::ResolvedCall& call, int steps) {
    const int world = GetParam();
    Account account(call, world, {.seed = call.count + 1, .slice_bytes = 4096, .hosts = hosts_of_two(world)});
    account.run(steps, call.count);
    if (HasFatalFailure()) return;
    EXPECT_LE(account.largest_loss(), allowance(call, world, steps, account.magnitude())) << call.describe();
  }
};

// T11: sum of outputs + residuals = sum of inputs.
TEST_P(Feedback, nothing_is_lost_in_any_algorithm_by_any_codec) {
  const int world = GetParam();
  std::uint64_t round = 0;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      for (const Compression& codec : codecs()) {
        for (const std::uint64_t count : {1, 100, 3001}) {
          const ReduceOp ops[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum};
          const CallOptions options{.op = ops[++round % 3],
                                    .root = is_rooted(collective) ? static_cast<int>(round) % world : 0,
                                    .compression = codec,
                                    .algorithm = algorithm};
          expect_conserved(call_of(collective, count, world, options), 5);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Feedback, nothing_is_lost_over_many_calls) {
  const CallOptions options{.compression = minmax({.bits = 2, .bucket_size = 64})};
  expect_conserved(call_of(Collective::all_reduce, 1001, GetParam(), options), 100);
}

TEST_P(Feedback, nothing_but_the_rounding_of_results_is_lost_of_16_bit_types) {
  const int world = GetParam();
  for (const DataType type : {DataType::bfloat16, DataType::float16}) {
    for (const Algorithm algorithm : plan::algorithms_of(Collective::all_reduce)) {
      const CallOptions options{.compression = minmax({.bits = 4, .bucket_size = 64}), .algorithm = algorithm};
      expect_conserved(call_of(Collective::all_reduce, 1001, world, options, type), 10);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Feedback, ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8),
                         [](const auto& info) { return fmt::format("of_{}", info.param); });

// States continue in another algorithm, on another rank and in a smaller world, where ranks encode different elements
// from before.
TEST(FeedbackStates, what_is_owed_is_paid_in_another_algorithm) {
  constexpr std::uint64_t kCount = 3000;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce}) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      const CallOptions options{.compression = minmax({.bits = 3, .bucket_size = 64}), .algorithm = algorithm};
      Account account(call_of(collective, kCount, 4, options), 4, {.slice_bytes = 4096, .hosts = {0, 0, 0, 1}});
      // A residual of 100 in every element of every rank is applied at once; only this call's own error remains.
      for (ErrorFeedback& state : account.states()) {
        for (float& x : state.residual()) x = 100;
      }
      account.run(1, 5);
      long double least = INFINITY;
      for (const long double x : account.behind()) least = std::fmin(least, -x);
      EXPECT_GT(least, 300) << to_string(collective) << " " << to_string(algorithm);
      for (const ErrorFeedback& state : account.states()) {
        for (const float x : state.residual()) ASSERT_LT(std::fabs(x), 60) << to_string(algorithm);
      }
    }
  }
}

// Rank 2 of 5 is gone with its residual; two new ranks begin with their peers' counter.
TEST(FeedbackStates, survivors_take_theirs_along_into_another_world) {
  const CallOptions options{.compression = minmax({.bits = 2, .bucket_size = 64})};
  Account before(call_of(Collective::all_reduce, 3001, 5, options), 5, {});
  before.run(4, 6);
  std::vector<ErrorFeedback> states = before.states();
  states.erase(states.begin() + 2);
  for (int i = 0; i < 2; ++i) states.emplace_back(3001, states[0].counter());
  const engine::ResolvedCall call = call_of(Collective::all_reduce, 3001, 6, options);
  Account after(call, 6, {}, states);
  after.run(4, 7);
  EXPECT_LE(after.largest_loss(), allowance(call, 6, 4, after.magnitude()));
  for (const ErrorFeedback& state : after.states()) EXPECT_EQ(state.counter(), 8u);
}

double share_behind(const Compression& codec, bool with_feedback, int steps) {
  constexpr int kWorld = 4;
  constexpr std::uint64_t kCount = 2048;
  const CallOptions options{.compression = codec};
  engine::ResolvedCall call = call_of(Collective::all_reduce, kCount, kWorld, options);
  call.error_feedback = with_feedback;
  Account account(call, kWorld, {});
  account.run(steps, 9);
  double squares = 0;
  for (const long double x : account.behind()) squares += static_cast<double>(x * x);
  // Inputs have a mean of 0.45. Its share of the sum over ranks and steps is the part that grows with the steps.
  const double mean = 0.45 * kWorld * steps;
  return squares / (kCount * mean * mean);
}

// Noise that is drawn anew in each call averages out as 1/T. With error feedback only the last residual is missing, so
// the error decays as 1/T^2.
TEST(FeedbackStates, the_cumulative_error_decays_with_the_square_of_the_calls) {
  for (const Compression& codec : {minmax({.bits = 4, .bucket_size = 256}), minmax({.bits = 3, .bucket_size = 64})}) {
    const double first = share_behind(codec, true, 16), last = share_behind(codec, true, 256);
    EXPECT_GT(first / last, 120);
    EXPECT_LT(first / last, 500);
    const double plain_first = share_behind(codec, false, 16), plain_last = share_behind(codec, false, 256);
    EXPECT_GT(plain_first / plain_last, 8);
    EXPECT_LT(plain_first / plain_last, 32);
    EXPECT_LT(last * 50, plain_last);
  }
}

// The results of every call on all ranks, from a checkpoint at `saved_at` on; also for codecs that draw random numbers.
std::vector<ByteVector> outputs_of(int steps, int saved_at, const std::shared_ptr<const Codec>& codec) {
  constexpr int kWorld = 3;
  constexpr std::uint64_t kCount = 5000;
  const CallOptions options{.compression = minmax({.bits = 3, .bucket_size = 16})};
  const engine::ResolvedCall call = call_of(Collective::all_reduce, kCount, kWorld, options);
  std::vector<ErrorFeedback> states;
  for (int rank = 0; rank < kWorld; ++rank) states.emplace_back(kCount);
  auto sim = std::make_unique<SimWorld>(kWorld, SimOptions{.codec_seed = 4, .codec = codec, .feedback = states});
  std::vector<ByteVector> outputs;
  Random random(3);
  for (int step = 0; step < steps; ++step) {
    if (step == saved_at) {
      for (ErrorFeedback& state : states) state = ErrorFeedback::restore(state.save());
      sim = std::make_unique<SimWorld>(kWorld, SimOptions{.codec_seed = 4, .codec = codec, .feedback = states});
    }
    std::vector<ByteVector> inputs(kWorld, ByteVector(kCount * sizeof(float)));
    for (ByteVector& input : inputs) {
      for (std::size_t i = 0; i < kCount; ++i) set_element(DataType::float32, input.data(), i, random.normal());
    }
    const CollectiveResult outcome = run_collective(*sim, call, inputs);
    EXPECT_EQ(outcome.problem, "");
    outputs.insert(outputs.end(), outcome.outputs.begin(), outcome.outputs.end());
  }
  return outputs;
}

TEST(FeedbackStates, a_restored_checkpoint_gives_the_same_bits_as_no_interruption) {
  for (const std::shared_ptr<const Codec>& codec :
       {std::shared_ptr<const Codec>(), std::shared_ptr<const Codec>(std::make_shared<NoisyCodec>())}) {
    const auto whole = outputs_of(8, -1, codec);
    EXPECT_EQ(outputs_of(8, 5, codec), whole);
  }
}

TEST(FeedbackStates, neither_slices_nor_arrival_change_anything) {
  constexpr int kWorld = 5;
  for (const Algorithm algorithm : plan::algorithms_of(Collective::all_reduce)) {
    const CallOptions options{.compression = minmax({.bits = 3, .bucket_size = 16}), .algorithm = algorithm};
    const engine::ResolvedCall call = call_of(Collective::all_reduce, 7001, kWorld, options);
    const sim::NetworkOptions late{
        .latency = std::chrono::microseconds(3), .jitter = std::chrono::milliseconds(2), .slots = 2};
    Account fine(call, kWorld, {.seed = 1, .slice_bytes = 4096, .hosts = hosts_of_two(kWorld)});
    Account coarse(call, kWorld, {.seed = 2, .link = late, .slice_bytes = 262144, .hosts = hosts_of_two(kWorld)});
    fine.run(3, 8);
    coarse.run(3, 8);
    EXPECT_EQ(fine.behind(), coarse.behind()) << to_string(algorithm);
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      const auto one = fine.states()[rank].residual(), other = coarse.states()[rank].residual();
      EXPECT_TRUE(std::equal(one.begin(), one.end(), other.begin())) << to_string(algorithm) << " rank " << rank;
    }
  }
}

}  // namespace
}  // namespace qccl::testing
