// Error feedback through the public API, over real shared memory and TCP, ranks as threads. property/feedback_test.cc
// checks that nothing is lost with any codec and algorithm.
#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>
#include <cstring>
#include <limits>

#include "support/error_of.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

constexpr std::size_t kCount = 20'000;
const Compression kCodec = minmax({.bits = 3, .bucket_size = 64});

class ErrorFeedbackCalls : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, ErrorFeedbackCalls, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

std::vector<float> input_of(int rank, int step, std::size_t count = kCount) {
  std::vector<float> input(count);
  for (std::size_t i = 0; i < count; ++i) {
    input[i] = std::sin(static_cast<float>(i * 7 + static_cast<std::size_t>(rank * 13 + step * 29)));
  }
  return input;
}

TEST_P(ErrorFeedbackCalls, blocking_and_not_in_place_and_not_give_the_same_bits) {
  expect_success(3, [](Communicator& comm) {
    ErrorFeedback blocking(kCount), waited(kCount);
    for (int step = 0; step < 4; ++step) {
      auto in_place = input_of(comm.rank(), step);
      comm.all_reduce(in_place, {.compression = kCodec, .error_feedback = blocking});
      const auto input = input_of(comm.rank(), step);
      std::vector<float> output(kCount);
      comm.all_reduce_async(input.data(), output.data(), kCount, DataType::float32,
                            {.compression = kCodec, .error_feedback = waited})
          .wait();
      EXPECT_EQ(output, in_place);
      EXPECT_EQ(input, input_of(comm.rank(), step));
    }
    EXPECT_TRUE(std::equal(blocking.residual().begin(), blocking.residual().end(), waited.residual().begin()));
    EXPECT_EQ(waited.counter(), 4u);
  });
}

TEST_P(ErrorFeedbackCalls, a_state_whose_handle_is_gone_lives_until_its_call_has_ended) {
  expect_success(2, [](Communicator& comm) {
    auto data = input_of(comm.rank(), 0);
    const Work work = comm.all_reduce_async(data, {.compression = kCodec, .error_feedback = ErrorFeedback(kCount)});
    work.wait();
    auto plain = input_of(comm.rank(), 0);
    comm.all_reduce(plain, {.compression = kCodec});
    EXPECT_EQ(data, plain);  // the residual was zero
  });
}

TEST_P(ErrorFeedbackCalls, that_make_no_sense_are_refused_and_leave_the_group_usable) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> data(100), all(200);
    std::vector<std::int32_t> integers(100);
    const ErrorFeedback feedback(100), other(99);
    const CallOptions with{.compression = kCodec, .error_feedback = feedback};
    const auto wrong_size = error_of([&] { comm.all_reduce(data, {.error_feedback = other}); });
    EXPECT_EQ(wrong_size.kind, ErrorKind::invalid_argument);
    EXPECT_NE(wrong_size.message.find("for 99 elements, but the input has 100"), std::string::npos);
    // A reduce_scatter's input has the parts of all ranks.
    EXPECT_EQ(error_of([&] { comm.reduce_scatter(all.data(), data.data(), 100, DataType::float32, with); }).kind,
              ErrorKind::invalid_argument);
    EXPECT_EQ(error_of([&] { comm.all_gather(data.data(), all.data(), 100, DataType::float32, with); }).kind,
              ErrorKind::unsupported);
    EXPECT_EQ(error_of([&] { comm.all_reduce(integers, {.error_feedback = feedback}); }).kind, ErrorKind::unsupported);
    EXPECT_EQ(error_of([&] { comm.all_reduce(data, {.op = ReduceOp::max, .error_feedback = feedback}); }).kind,
              ErrorKind::unsupported);
    comm.all_reduce(data, with);
    EXPECT_EQ(feedback.counter(), 1u);
  });
}

TEST_P(ErrorFeedbackCalls, a_second_call_while_one_uses_the_state_is_misuse) {
  expect_success(2, [](Communicator& comm) {
    const ErrorFeedback feedback(kCount);
    const CallOptions with{.compression = kCodec, .error_feedback = feedback};
    auto data = input_of(comm.rank(), 0), more = data;
    std::vector<char> go(1);
    if (comm.rank() == 1) comm.recv(go, 0);  // until then rank 0's call can't end
    const Work first = comm.all_reduce_async(data, with);
    if (comm.rank() == 0) {
      EXPECT_EQ(error_of([&] { comm.all_reduce(more, with); }).kind, ErrorKind::misuse);
      EXPECT_EQ(error_of([&] { feedback.residual(); }).kind, ErrorKind::misuse);
      comm.send(go, 1);
    }
    first.wait();
    EXPECT_EQ(feedback.counter(), 1u);
    // Recorded calls, and those of a list, use the feedback only when they are posted.
    const CallBuffers buffers[] = {{data.data(), data.data(), kCount}, {more.data(), more.data(), kCount}};
    EXPECT_EQ(error_of([&] { comm.all_reduce_coalesced(buffers, DataType::float32, with); }).kind, ErrorKind::misuse);
    comm.all_reduce(data, with);
    EXPECT_EQ(feedback.counter(), 3u);
  });
}

TEST_P(ErrorFeedbackCalls, on_some_ranks_only_fail_on_all_and_say_so) {
  for (const bool is_compressed : {true, false}) {
    expect_success(2, [&](Communicator& comm) {
      auto data = input_of(comm.rank(), 0);
      CallOptions options{.compression = is_compressed ? kCodec : none()};
      if (comm.rank() == 1) options.error_feedback = ErrorFeedback(kCount);
      const auto info = error_of([&] { comm.all_reduce(data, options); });
      EXPECT_EQ(info.kind, ErrorKind::misuse) << info.message;
      EXPECT_NE(info.message.find(", error feedback)"), std::string::npos) << info.message;
    });
  }
}

TEST_P(ErrorFeedbackCalls, that_fail_leave_the_state_as_it_was) {
  expect_success(2, [](Communicator& comm) {
    Communicator twin = comm.dup();
    twin.barrier();  // before all ranks have it, it would fail with its parent
    ErrorFeedback feedback(kCount);
    const CallOptions with{.compression = kCodec, .error_feedback = feedback};
    auto data = input_of(comm.rank(), 0);
    twin.all_reduce(data, with);
    const std::vector<float> owed(feedback.residual().begin(), feedback.residual().end());
    const auto is_unchanged = [&] {
      return feedback.counter() == 1 && std::equal(owed.begin(), owed.end(), feedback.residual().begin());
    };
    if (comm.rank() == 0) {
      const Work work = comm.all_reduce_async(data, with);  // rank 1 never makes this call
      comm.abort("on purpose");
      EXPECT_THROW(work.wait(), Error);
      EXPECT_TRUE(is_unchanged());
      EXPECT_EQ(error_of([&] { comm.all_reduce(data, with); }).kind, ErrorKind::aborted);
      EXPECT_TRUE(is_unchanged()) << "the group had failed before";
    }
    twin.all_reduce(data, with);
    EXPECT_EQ(feedback.counter(), 2u);
  });
}

TEST_P(ErrorFeedbackCalls, a_call_that_is_not_compressed_leaves_the_state_alone_and_takes_no_short_way) {
  expect_success(2, [](Communicator& comm) {
    for (const std::size_t count : {10, 100'000}) {
      const ErrorFeedback feedback(count);
      feedback.residual()[3] = 7;
      auto buffer = comm.allocate<float>(count);
      std::fill(buffer.begin(), buffer.end(), 1.0f);
      comm.barrier();
      const Traffic before = comm.traffic();
      comm.all_reduce(std::span<float>(buffer), {.error_feedback = feedback});
      const Traffic after = comm.traffic();
      EXPECT_EQ(after.shared_bytes_sent, before.shared_bytes_sent);
      EXPECT_GE(after.payload_bytes_sent - before.payload_bytes_sent, count * sizeof(float));
      EXPECT_EQ(buffer[3], 2.0f);
      EXPECT_EQ(feedback.residual()[3], 7.0f);
      EXPECT_EQ(feedback.counter(), 0u);
    }
    std::vector<float> nothing;
    comm.all_reduce(nothing, {.compression = kCodec, .error_feedback = ErrorFeedback(0)});
  });
}

TEST_P(ErrorFeedbackCalls, the_groups_compression_uses_it_too) {
  auto with_compression = options();
  with_compression.compression = kCodec;
  const auto failures = run_threads(2, with_compression, [](Communicator& comm) {
    const ErrorFeedback feedback(kCount);
    auto data = input_of(comm.rank(), 0);
    comm.all_reduce(data, {.error_feedback = feedback});
    EXPECT_EQ(feedback.counter(), 1u);
    EXPECT_NE(*std::max_element(feedback.residual().begin(), feedback.residual().end()), 0.0f);
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

// A step whose gradients overflowed is lost for its blocks, but the residual from before and later steps are not.
TEST_P(ErrorFeedbackCalls, what_is_not_finite_shows_in_the_result_and_leaves_the_residual_as_it_was) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  expect_success(3, [](Communicator& comm) {
    for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
      const ErrorFeedback feedback(kCount);
      const CallOptions with{.compression = kCodec, .error_feedback = feedback};
      auto data = input_of(comm.rank(), 0);
      comm.all_reduce(data, with);
      const std::vector<float> owed(feedback.residual().begin(), feedback.residual().end());
      data = input_of(comm.rank(), 1);
      if (comm.rank() == 1) data[100] = bad;
      comm.all_reduce(data, with);
      for (std::size_t i = 64; i < 128; ++i) {  // the bucket
        ASSERT_FALSE(std::isfinite(data[i]));
        // Rank 0 owns the chunk and has a NaN in the sum, rank 1 in its input; rank 2 sent all it has.
        if (comm.rank() < 2) {
          ASSERT_EQ(feedback.residual()[i], owed[i]);
        }
      }
      EXPECT_TRUE(std::isfinite(data[0]) && std::isfinite(data[128]));
      data = input_of(comm.rank(), 2);
      comm.all_reduce(data, with);
      for (const float x : data) ASSERT_TRUE(std::isfinite(x));
    }
  });
}

}  // namespace
}  // namespace qccl::testing
