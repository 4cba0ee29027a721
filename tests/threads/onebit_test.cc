// compressed_allreduce() over real shared memory and TCP, ranks as threads; golden/onebit_test.cc has DeepSpeed's
// values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "support/error_of.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Onebit : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, Onebit, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

// Inputs differ between ranks and steps, and so do their scales.
std::vector<float> input_of(int rank, int step, std::size_t count) {
  std::mt19937 random(static_cast<std::uint32_t>(rank * 1000 + step + 1));
  std::normal_distribution<float> normal(0.1f * static_cast<float>(rank), 1.0f + 0.3f * static_cast<float>(step));
  std::vector<float> input(count);
  for (float& x : input) x = normal(random);
  return input;
}

// One rank's error buffers, kept from step to step.
struct Errors {
  Errors(std::size_t count, int world)
      : worker(onebit_sizes(count, world).worker_error), server(onebit_sizes(count, world).server_error) {}
  std::vector<float> worker;
  std::vector<float> server;
};

std::vector<float> reduced(Communicator& comm, std::vector<float> buffer, Errors& errors) {
  comm.compressed_allreduce(buffer, errors.worker, errors.server);
  return buffer;
}

// The definition in include/qccl/onebit.h for all ranks at once, in double where it does not specify a precision.
class Simulation {
 public:
  Simulation(std::size_t count, int world)
      : world_(static_cast<std::size_t>(world)), count_(count), errors_(world_, Errors(count, world)) {}

  std::vector<float> step(int step) {
    for (std::size_t rank = 0; rank < world_; ++rank) quantize(rank, input_of(static_cast<int>(rank), step, count_));
    std::vector<float> output;
    for (std::size_t chunk = 0; chunk < world_; ++chunk) append_chunk(output, chunk);
    output.resize(count_);
    return output;
  }

 private:
  static float scale_of(const std::vector<float>& values) {
    double squares = 0;
    for (const float x : values) squares += double{x} * double{x};
    return static_cast<float>(std::sqrt(squares / static_cast<double>(values.size())));
  }

  // errors_[rank].worker becomes the new error, sent_[rank] the values that peers get.
  void quantize(std::size_t rank, const std::vector<float>& input) {
    std::vector<float>& b = errors_[rank].worker;
    for (std::size_t i = 0; i < count_; ++i) b[i] += input[i];
    const float scale = scale_of(b);
    sent_.resize(world_);
    sent_[rank].resize(b.size());
    for (std::size_t i = 0; i < b.size(); ++i) {
      sent_[rank][i] = b[i] >= 0 ? scale : -scale;
      b[i] -= sent_[rank][i];
    }
  }

  void append_chunk(std::vector<float>& output, std::size_t chunk) {
    std::vector<float>& m = errors_[chunk].server;
    for (std::size_t i = 0; i < m.size(); ++i) {
      float sum = 0;
      for (const auto& sent : sent_) sum += sent[chunk * m.size() + i] / static_cast<float>(world_);
      m[i] += sum;
    }
    const float scale = scale_of(m);
    for (float& x : m) {
      output.push_back(x >= 0 ? scale : -scale);
      x -= output.back();
    }
  }

  std::size_t world_;
  std::size_t count_;
  std::vector<Errors> errors_;
  std::vector<std::vector<float>> sent_;
};

void expect_same_everywhere(Communicator& comm, const std::vector<float>& output) {
  std::vector<float> all(output.size() * static_cast<std::size_t>(comm.size()));
  comm.all_gather(output, all);
  for (int rank = 0; rank < comm.size(); ++rank) {
    const float* of_rank = all.data() + static_cast<std::size_t>(rank) * output.size();
    ASSERT_TRUE(output.empty() || std::memcmp(of_rank, output.data(), output.size() * sizeof(float)) == 0);
  }
}

// The outputs of all steps, by count and step.
using Expected = std::vector<std::vector<std::vector<float>>>;
constexpr std::size_t kCounts[] = {1, 7, 8, 100, 4099, 70'001};
constexpr int kSteps = 4;

Expected expected_outputs(int world) {
  Expected expected;
  for (const std::size_t count : kCounts) {
    Simulation simulation(count, world);
    expected.emplace_back();
    for (int step = 0; step < kSteps; ++step) expected.back().push_back(simulation.step(step));
  }
  return expected;
}

void expect_near(const std::vector<float>& output, const std::vector<float>& expected) {
  ASSERT_EQ(output.size(), expected.size());
  for (std::size_t i = 0; i < output.size(); ++i) ASSERT_NEAR(output[i], expected[i], 1e-6) << i;
}

TEST_P(Onebit, equals_the_definition_and_is_the_same_bits_on_every_rank) {
  for (int world = 1; world <= 8; ++world) {
    const Expected expected = expected_outputs(world);
    expect_success(world, [&](Communicator& comm) {
      for (std::size_t k = 0; k < std::size(kCounts); ++k) {
        SCOPED_TRACE("world " + std::to_string(world) + ", count " + std::to_string(kCounts[k]));
        Errors errors(kCounts[k], world);
        for (std::size_t step = 0; step < kSteps; ++step) {
          const auto output = reduced(comm, input_of(comm.rank(), static_cast<int>(step), kCounts[k]), errors);
          expect_near(output, expected[k][step]);
          expect_same_everywhere(comm, output);
        }
      }
    });
  }
}

// Sum of outputs + mean of worker errors + server error = sum over the steps of the mean inputs.
TEST_P(Onebit, nothing_is_lost_over_many_steps) {
  constexpr std::size_t kCount = 1000;
  for (const int world : {1, 3, 4}) {
    expect_success(world, [&](Communicator& comm) {
      Errors errors(kCount, world);
      std::vector<double> owed(kCount);
      std::vector<float> given(kCount);
      for (int step = 0; step < 50; ++step) {
        const auto input = input_of(comm.rank(), step, kCount);
        const auto output = reduced(comm, input, errors);
        for (std::size_t i = 0; i < kCount; ++i) owed[i] -= output[i];
        for (std::size_t i = 0; i < kCount; ++i) given[i] += input[i];
      }
      for (std::size_t i = 0; i < kCount; ++i) given[i] -= errors.worker[i];
      comm.all_reduce(given, {.op = ReduceOp::avg});
      std::vector<float> server(errors.server.size() * static_cast<std::size_t>(world));
      comm.all_gather(errors.server, server);
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_NEAR(owed[i] + given[i] - server[i], 0, 2e-3) << i;
    });
  }
}

TEST_P(Onebit, a_nan_is_in_every_element_on_every_rank_and_stays) {
  constexpr std::size_t kCount = 3000;
  expect_success(3, [](Communicator& comm) {
    Errors errors(kCount, 3);
    const auto is_nan = [](float x) { return std::memcmp(&x, &kNan, sizeof(x)) == 0; };
    for (int step = 0; step < 3; ++step) {
      auto input = input_of(comm.rank(), step, kCount);
      if (step == 0 && comm.rank() == 1) input[17] = kNan;
      const auto output = reduced(comm, std::move(input), errors);
      EXPECT_TRUE(std::all_of(output.begin(), output.end(), is_nan));
      EXPECT_TRUE(std::all_of(errors.server.begin(), errors.server.end(), is_nan));
      const auto left = std::count_if(errors.worker.begin(), errors.worker.end(), is_nan);
      EXPECT_EQ(static_cast<std::size_t>(left), comm.rank() == 1 ? errors.worker.size() : 0u);
    }
  });
}

TEST_P(Onebit, an_infinity_never_becomes_a_number) {
  expect_success(2, [](Communicator& comm) {
    Errors errors(100, 2);
    auto input = input_of(comm.rank(), 0, 100);
    if (comm.rank() == 0) input[3] = -kInfinity;
    for (const float x : reduced(comm, std::move(input), errors)) EXPECT_FALSE(std::isfinite(x));
  });
}

TEST_P(Onebit, negative_zero_counts_as_positive) {
  expect_success(2, [](Communicator& comm) {
    Errors errors(100, 2);
    for (const float x : reduced(comm, std::vector<float>(100, -0.0f), errors)) EXPECT_FALSE(std::signbit(x));
    std::vector<float> input(16, -2.0f);
    input[5] = -0.0f;
    Errors fresh(16, 2);
    const auto output = reduced(comm, input, fresh);
    EXPECT_GT(output[5], 0);
    EXPECT_LT(output[4], 0);
  });
}

TEST_P(Onebit, huge_and_tiny_values_keep_their_scale) {
  expect_success(2, [](Communicator& comm) {
    for (const float value : {3e38f, 1e-44f, std::numeric_limits<float>::min()}) {
      Errors errors(5000, 2);
      const auto output = reduced(comm, std::vector<float>(5000, -value), errors);
      for (const float x : output) EXPECT_NEAR(x / -value, 1, 0.2);
    }
  });
}

TEST_P(Onebit, the_input_of_a_call_out_of_place_is_only_read) {
  expect_success(3, [](Communicator& comm) {
    for (const std::size_t count : {24, 1001}) {
      const auto input = input_of(comm.rank(), 0, count);
      auto read = input;
      Errors errors(count, 3), in_place_errors(count, 3);
      std::vector<float> output(count, kNan);
      comm.compressed_allreduce(read, output, errors.worker, errors.server);
      EXPECT_EQ(read, input);
      EXPECT_EQ(output, reduced(comm, input, in_place_errors));
      EXPECT_EQ(errors.worker, in_place_errors.worker);
      EXPECT_EQ(errors.server, in_place_errors.server);
    }
  });
}

// DeepSpeed's optimizers pad to a multiple of world * lcm(world, 8).
TEST_P(Onebit, any_padding_of_8_for_each_rank_will_do) {
  expect_success(3, [](Communicator& comm) {
    std::vector<float> worker_error(72), server_error(24), buffer(10, 1.0f);
    comm.compressed_allreduce(buffer, worker_error, server_error);
    const float scale = static_cast<float>(std::sqrt(10.0 / 72));
    for (const float x : buffer) EXPECT_NEAR(x, scale, 1e-6);  // every element of every chunk is +scale
  });
}

TEST_P(Onebit, no_elements_clear_the_errors) {
  expect_success(3, [](Communicator& comm) {
    std::vector<float> worker_error(24, 1.0f), server_error(8, kNan), none;
    comm.compressed_allreduce(none, worker_error, server_error);
    EXPECT_EQ(worker_error, std::vector<float>(24));
    EXPECT_EQ(server_error, std::vector<float>(8));
  });
}

TEST_P(Onebit, wrong_sizes_say_what_is_needed_and_leave_the_group_usable) {
  expect_success(3, [](Communicator& comm) {
    const auto message_of = [&](std::size_t count, std::size_t worker, std::size_t server) {
      std::vector<float> buffer(count), worker_error(worker), server_error(server);
      const auto info = error_of([&] { comm.compressed_allreduce(buffer, worker_error, server_error); });
      EXPECT_EQ(info.kind, ErrorKind::invalid_argument);
      EXPECT_EQ(info.operation, "compressed_allreduce");
      return info.message;
    };
    EXPECT_NE(message_of(100, 100, 40).find("multiple of 24 that is at least 100, for example 120"), std::string::npos);
    EXPECT_NE(message_of(100, 96, 32).find("at least 100"), std::string::npos);
    EXPECT_NE(message_of(100, 120, 120).find("server_error has 120 elements"), std::string::npos);
    EXPECT_NE(message_of(100, 120, 120).find("needs 40"), std::string::npos);
    std::vector<float> input(10), output(11), worker_error(24), server_error(8);
    EXPECT_EQ(error_of([&] { comm.compressed_allreduce(input, output, worker_error, server_error); }).kind,
              ErrorKind::invalid_argument);
    Errors errors(100, 3);
    reduced(comm, std::vector<float>(100, 1.0f), errors);
  });
}

TEST_P(Onebit, other_counts_on_another_rank_fail_on_every_rank) {
  struct Counts {
    std::size_t of_rank[2];
  };
  // The same padding, another padding, no elements at all.
  for (const Counts counts : {Counts{{10, 12}}, Counts{{10, 1000}}, Counts{{0, 100'000}}}) {
    expect_success(2, [&](Communicator& comm) {
      const std::size_t count = counts.of_rank[comm.rank()];
      std::vector<float> buffer(count, 1.0f);
      Errors errors(count, 2);
      const auto call = [&] { comm.compressed_allreduce(buffer, errors.worker, errors.server); };
      const auto info = error_of(call);
      EXPECT_EQ(info.operation, "compressed_allreduce") << info.message;
      EXPECT_TRUE(info.kind == ErrorKind::misuse || info.kind == ErrorKind::aborted) << info.message;
      EXPECT_EQ(error_of(call).operation, "compressed_allreduce");  // the group is lost
    });
  }
}

TEST_P(Onebit, a_call_in_a_group_of_calls_is_misuse) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> buffer(16), worker_error(16), server_error(8);
    comm.group_start();
    const auto info = error_of([&] { comm.compressed_allreduce(buffer, worker_error, server_error); });
    EXPECT_EQ(info.kind, ErrorKind::misuse);
    EXPECT_NE(info.message.find("no compressed_allreduce between group_start()"), std::string::npos) << info.message;
    comm.group_end().wait();
    comm.compressed_allreduce(buffer, worker_error, server_error);
  });
}

TEST_P(Onebit, groups_that_share_ranks_do_not_disturb_each_other) {
  expect_success(4, [](Communicator& comm) {
    Communicator twin = comm.dup();
    Errors errors(50'000, 4), twin_errors(50'000, 4);
    std::vector<float> from_twin;
    std::thread other([&] {
      for (int step = 0; step < 5; ++step) {
        from_twin = reduced(twin, input_of(comm.rank(), step, 50'000), twin_errors);
      }
    });
    std::vector<float> own;
    for (int step = 0; step < 5; ++step) own = reduced(comm, input_of(comm.rank(), step, 50'000), errors);
    other.join();
    EXPECT_EQ(own, from_twin);
  });
}

}  // namespace
}  // namespace qccl::testing
