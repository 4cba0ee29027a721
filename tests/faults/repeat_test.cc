// A step that a lost rank has failed is repeated by the survivors: gradients summed in place and their error feedback
// are on every survivor what they were before the call.
#include <cmath>

#include "faults/job.h"

namespace qccl::testing {
namespace {

constexpr std::size_t kCount = 1 << 20;

class Repeat : public Transports {};

std::vector<float> gradient(int rank, int step) {
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    values[i] = std::sin(static_cast<float>(i % 1000) + static_cast<float>(rank * 100 + step));
  }
  return values;
}

TEST_P(Repeat, survivors_of_a_kill_lose_neither_their_gradients_nor_what_they_owe) {
  JobOptions options = job(3);
  options.faults = {{.rank = 1, .point = "training", .after = Milliseconds(60)}};
  run_ranks(options, [](Rank& rank) {
    Communicator comm = rank.init();
    ErrorFeedback feedback(kCount);
    const CallOptions call{.compression = minmax({.bits = 4}),
                           .error_feedback = feedback,
                           .algorithm = Algorithm::sra,
                           .keep_input = true};
    for (int step = 0;; ++step) {
      const std::vector<float> owed(feedback.residual().begin(), feedback.residual().end());
      std::vector<float> values = gradient(rank.rank(), step);
      try {
        comm.all_reduce(values, call);
        if (step == 2) rank.point("training");
      } catch (const Error& error) {
        EXPECT_EQ(values, gradient(rank.rank(), step));
        EXPECT_TRUE(std::equal(owed.begin(), owed.end(), feedback.residual().begin()));
        EXPECT_EQ(feedback.counter(), static_cast<std::uint64_t>(step));
        break;
      }
    }
    const std::uint64_t calls = feedback.counter();
    Communicator rest = comm.shrink();
    std::vector<std::uint64_t> newest{calls};
    rest.all_reduce(newest, {.op = ReduceOp::max});
    EXPECT_LE(newest[0] - calls, 1u);
    feedback.settle(newest[0]);
    std::vector<float> values = gradient(rank.rank(), static_cast<int>(newest[0]));
    rest.all_reduce(values, call);
    EXPECT_EQ(feedback.counter(), newest[0] + 1);
    rest.barrier();
  });
}

TEST_P(Repeat, memory_that_ranks_share_is_kept_as_well) {
  JobOptions options = job(3);
  options.faults = {{.rank = 2, .point = "summing", .after = Milliseconds(30)}};
  run_ranks(options, [](Rank& rank) {
    Communicator comm = rank.init();
    auto values = comm.allocate<float>(kCount);
    const auto own = static_cast<float>(1 << rank.rank());
    const auto sum_once = [&](Communicator& group) {
      std::fill(values.begin(), values.end(), own);
      group.all_reduce(std::span<float>(values), {.keep_input = true});
    };
    failure_of(rank, [&] {
      sum_once(comm);
      rank.point("summing");
      while (true) sum_once(comm);
    });
    Communicator rest = comm.shrink();
    EXPECT_EQ(std::ranges::count(values, own), static_cast<std::ptrdiff_t>(kCount));
    rest.all_reduce(std::span<float>(values), {.keep_input = true});
    EXPECT_EQ(std::ranges::count(values, 3.0f), static_cast<std::ptrdiff_t>(kCount));
    rest.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Over, Repeat, both_transports(), transport_name);

}  // namespace
}  // namespace qccl::testing
