// The memory of an OuterLoop, as docs/outer.md states it.
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>
#include <latch>

#include "memory/counted_new.h"
#include "support/thread_job.h"

namespace qccl::testing {
namespace {

using train::OuterLoop;
using train::OuterOptions;
using train::OuterParameter;
using train::OuterSgd;

constexpr int kRanks = 2;
constexpr std::size_t kLayers = 4, kLayer = 1'000'000;  // values; the library's own buffers are small beside them

// The most bytes of a rank for each value of the model, in two rounds of each fragment.
double peak_bytes_a_value(const OuterOptions& options) {
  double found = 0;
  const auto failures = run_threads(kRanks, {}, [&](Communicator& comm) {
    std::vector<std::vector<float>> layers(kLayers, std::vector<float>(kLayer, 1.0F));
    std::vector<OuterParameter> parameters;
    for (std::size_t i = 0; i < kLayers; ++i)
      parameters.push_back(OuterParameter::of("b." + std::to_string(i), layers[i]));
    {  // the library's own buffers
      ErrorFeedback feedback(kLayer);
      comm.all_reduce(layers[0], {.op = ReduceOp::avg, .compression = options.compression, .error_feedback = feedback});
    }
    comm.barrier();
    std::size_t before = 0;
    if (comm.rank() == 0) {
      reset_peak_bytes();
      before = live_bytes();
    }
    comm.barrier();
    OuterLoop outer(comm, parameters, options);
    for (std::uint64_t step = 0; step < 2 * options.every; ++step) {
      for (auto& layer : layers) layer[step] += static_cast<float>(comm.rank());
      outer.step();
    }
    comm.barrier();
    if (comm.rank() == 0) found = static_cast<double>(peak_bytes() - before) / (kRanks * kLayers * kLayer);
    comm.barrier();
  });
  EXPECT_EQ(failures, std::vector<std::string>(kRanks, ""));
  return found;
}

struct Case {
  OuterOptions options;
  double stated;  // bytes a value
};

TEST(OuterMemory, is_what_the_page_states) {
  const auto averaging = [] {
    return std::make_shared<OuterSgd>(train::OuterSgdOptions{.learning_rate = 1, .momentum = 0});
  };
  const Case cases[] = {
      {{.every = 4, .fragments = 4, .delay = 1, .compression = block_int({.bits = 4})}, 4 + 4 + 4 + (8 + 8) / 4.0},
      {{.every = 4, .fragments = 4, .compression = block_int({.bits = 4}), .bfloat16_residual = true},
       4 + 4 + 2 + (8 + 8) / 4.0},
      {{.every = 4, .fragments = 4, .compression = block_int({.bits = 4}), .error_feedback = false}, 4 + 4 + 8 / 4.0},
      {{.every = 4, .fragments = 1, .compression = block_int({.bits = 4})}, 4 + 4 + 4 + 8 + 8},
      {{.every = 4, .fragments = 4, .optimizer = averaging()}, 4 + 8 / 4.0},
  };
  for (const Case& each : cases) {
    const double measured = peak_bytes_a_value(each.options);
    std::printf("%.0f bytes a value stated, %.2f measured\n", each.stated, measured);
    EXPECT_LT(measured, each.stated + 0.5);
    EXPECT_GT(measured, each.stated - 0.5);
  }
}

TEST(OuterMemory, of_saving_is_a_copy_of_the_state_and_of_two_fragments) {
  const auto failures = run_threads(1, {}, [&](Communicator& comm) {
    std::vector<std::vector<float>> layers(kLayers, std::vector<float>(kLayer, 1.0F));
    std::vector<OuterParameter> parameters;
    for (std::size_t i = 0; i < kLayers; ++i)
      parameters.push_back(OuterParameter::of("b." + std::to_string(i), layers[i]));
    OuterLoop outer(comm, parameters, {.every = 4, .fragments = 4, .compression = block_int({.bits = 4})});
    for (int step = 0; step < 4; ++step) outer.step();
    reset_peak_bytes();
    const std::size_t before = live_bytes();
    const std::vector<std::byte> saved = outer.save();
    const auto of_values = [](std::size_t bytes) { return static_cast<double>(bytes) / (kLayers * kLayer); };
    std::printf("%.2f bytes a value saved, %.2f at most\n", of_values(saved.size()), of_values(peak_bytes() - before));
    EXPECT_NEAR(of_values(saved.size()), 4 + 4 + 4, 0.01);
    EXPECT_LT(of_values(peak_bytes() - before), 4 + 4 + 4 + (4 + 4) / 4.0 + 0.1);
  });
  EXPECT_EQ(failures, std::vector<std::string>(1, ""));
}

struct Refused {
  bool was_refused = false, has_thrown = false;
  bool is_lost = false;  // the group, as a call that can't be repeated loses it
  std::vector<float> values;
};

// Rank 0's `nth` allocation in the step that begins a round is refused; finish() tries again.
Refused begin_round_without_memory(std::int64_t nth) {
  Refused found;
  std::latch posted(1);
  const auto failures = run_threads(kRanks, {}, [&](Communicator& comm) {
    std::vector<float> own(20'000, 1.0F), mean(10, 0.0F);
    std::vector<OuterParameter> parameters{OuterParameter::of("b.0", own), OuterParameter::of("b.mean", mean)};
    parameters[1].is_averaged = true;
    OuterLoop outer(comm, parameters, {.every = 2, .delay = 1, .compression = block_int({.bits = 4})});
    const auto step = [&] {
      for (std::size_t i = 0; i < own.size(); ++i) own[i] += static_cast<float>((i + 1) * (comm.rank() + 1) % 7);
      outer.step();
    };
    step();
    if (comm.rank() == 1) {
      step();
      posted.count_down();
    } else {
      posted.wait();
      refuse_allocation(nth);
      try {
        step();
      } catch (const std::exception&) {
        found.has_thrown = true;
      }
      found.was_refused = stop_refusing();
    }
    try {
      outer.finish();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::resource_exhausted) throw;
      if (comm.rank() == 0) found.is_lost = true;
    }
    if (comm.rank() == 0) found.values = own;
  });
  EXPECT_EQ(failures, std::vector<std::string>(kRanks, "")) << "allocation " << nth;
  return found;
}

TEST(OuterMemory, a_round_that_could_not_be_begun_for_lack_of_memory_is_begun_by_the_next_call) {
  const Refused undisturbed = begin_round_without_memory(1'000'000);
  ASSERT_FALSE(undisturbed.was_refused);
  int begun_again = 0;
  for (std::int64_t nth = 1; nth < 1000; ++nth) {
    const Refused found = begin_round_without_memory(nth);
    if (!found.was_refused) break;
    if (found.is_lost) continue;
    EXPECT_EQ(found.values, undisturbed.values) << "allocation " << nth;
    begun_again += found.has_thrown ? 1 : 0;
  }
  EXPECT_GT(begun_again, 2);
}

}  // namespace
}  // namespace qccl::testing
