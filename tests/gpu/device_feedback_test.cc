// Error feedback in the memory of a device: the bits and residuals of host memory, and a transaction as there.
#include <algorithm>
#include <array>
#include <barrier>
#include <vector>

#include "codec/registry.h"
#include "gpu/device_lanes.h"
#include "support/error_of.h"
#include "support/test_data.h"

namespace qccl::testing {
namespace {

using device::Code;

constexpr std::size_t kCount = 50'003;  // ragged; several slices of each chunk

class DeviceFeedbacks : public DeviceLanes {};
INSTANTIATE_TEST_SUITE_P(All, DeviceFeedbacks, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

std::vector<float> residual_of(const ErrorFeedback& feedback) {
  return {feedback.residual().begin(), feedback.residual().end()};
}

ByteVector input_of(const Communicator& comm, DataType type, std::uint64_t step) {
  return make_inputs(Pattern::normal, type, kCount, comm.size(), step)[static_cast<std::size_t>(comm.rank())];
}

// Steps in place of `type`, in host memory and in a device's, each with a state of its own.
class BothStates {
 public:
  BothStates(Communicator& comm, DataType type)
      : host_(comm), device_(comm.dup()), type_(type), memory_(kCount * element_bytes(type)) {}

  void expect_equal_step(CallOptions options) {
    ByteVector expected = input_of(host_, type_, ++steps_);
    memory_.write(stream_, expected);
    options.algorithm = Algorithm::sra;
    options.error_feedback = on_host_;
    host_.all_reduce(expected.data(), expected.data(), kCount, type_, options);
    options.error_feedback = on_device_;
    options.stream = stream_;
    device_.all_reduce(memory_.data(), memory_.data(), kCount, type_, options);
    EXPECT_TRUE(memory_.read(stream_) == expected);
  }
  void expect_equal_residuals() const {
    EXPECT_EQ(on_device_.counter(), on_host_.counter());
    EXPECT_TRUE(residual_of(on_device_) == residual_of(on_host_));
  }

 private:
  Communicator& host_;
  Communicator device_;
  const DataType type_;
  const ProgramStream stream_;
  const DeviceBuffer memory_;
  ErrorFeedback on_host_{kCount}, on_device_{kCount};
  std::uint64_t steps_ = 0;
};

TEST_P(DeviceFeedbacks, every_codec_leaves_the_bits_and_residuals_of_host_memory) {
  expect_success(3, [](Communicator& comm) {
    for (const CodecEntry* const codec : codec_list()) {
      if (codec->make == nullptr || codec->name == "lossless") continue;
      for (const Compression& compression : examples_of(*codec)) {
        SCOPED_TRACE(compression.to_string());
        BothStates both(comm, DataType::float32);
        for (int i = 0; i < 3; ++i) both.expect_equal_step({.compression = compression});
        both.expect_equal_residuals();
      }
    }
  });
  EXPECT_TRUE(has_launched());
}

TEST_P(DeviceFeedbacks, every_type_and_sum_leaves_the_bits_and_residuals_of_host_memory) {
  expect_success(3, [](Communicator& comm) {
    for (const DataType type : {DataType::float32, DataType::float16, DataType::bfloat16}) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}) {
        SCOPED_TRACE(std::string(to_string(type)) + std::string(to_string(op)));
        BothStates both(comm, type);
        const CallOptions options{.op = op, .premul_factor = 0.5 + comm.rank(), .compression = minmax({.bits = 3})};
        for (int i = 0; i < 3; ++i) both.expect_equal_step(options);
        both.expect_equal_residuals();
      }
    }
  });
  EXPECT_TRUE(has_launched());
}

TEST_P(DeviceFeedbacks, other_collectives_and_algorithms_give_the_bits_of_host_memory) {
  expect_success(3, [](Communicator& comm) {
    for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
      for (const Algorithm algorithm : plan::algorithms_of(collective)) {
        BothMemories both(comm);
        ErrorFeedback on_host(kCount * 3), on_device(kCount * 3);
        const std::size_t count = collective == Collective::reduce_scatter ? kCount : 3 * kCount;
        const CallOptions options{.compression = minmax({.bits = 3}), .algorithm = algorithm};
        both.expect_equal({collective, DataType::float32, count, options}, on_host, on_device);
        both.expect_equal({collective, DataType::float32, count, options}, on_host, on_device);
        EXPECT_TRUE(residual_of(on_device) == residual_of(on_host)) << to_string(collective);
      }
    }
  });
}

TEST_P(DeviceFeedbacks, a_state_goes_between_host_and_device_with_its_calls) {
  expect_success(2, [](Communicator& comm) {
    const ProgramStream streams[2] = {ProgramStream(0), ProgramStream(1)};
    const DeviceBuffer memory[2] = {DeviceBuffer(kCount * 4), DeviceBuffer(kCount * 4, fake::Kind::device, 1)};
    ErrorFeedback feedback(kCount), expected(kCount);
    for (std::uint64_t step = 0; step < 7; ++step) {
      ByteVector values = input_of(comm, DataType::float32, step), copy = values;
      CallOptions options{.compression = minmax({.bits = 2}), .error_feedback = expected, .algorithm = Algorithm::sra};
      comm.all_reduce(values.data(), values.data(), kCount, DataType::float32, options);
      options.error_feedback = feedback;
      if (step % 3 == 2) {
        comm.all_reduce(copy.data(), copy.data(), kCount, DataType::float32, options);
        EXPECT_TRUE(copy == values) << step;
      } else {
        const DeviceBuffer& used = memory[step % 3];
        options.stream = streams[step % 3];
        used.write(streams[step % 3], copy);
        comm.all_reduce(used.data(), used.data(), kCount, DataType::float32, options);
        EXPECT_TRUE(used.read(streams[step % 3]) == values) << step;
      }
      if (step == 3) {
        feedback.residual()[5] = expected.residual()[5] = 0.25f;
        feedback.reset(100, 7);
        expected.reset(100, 7);
      }
      if (step == 4) feedback = ErrorFeedback::restore(feedback.save());
    }
    feedback.settle(feedback.counter() - 1);
    expected.settle(expected.counter() - 1);
    EXPECT_TRUE(residual_of(feedback) == residual_of(expected));
  });
  EXPECT_TRUE(has_launched());
}

TEST_P(DeviceFeedbacks, a_state_outlives_its_job) {
  std::array<ErrorFeedback, 2> states;
  std::array<std::vector<float>, 2> expected;
  expect_success(2, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    BothStates both(comm, DataType::float32);
    const ProgramStream stream;
    const DeviceBuffer memory(kCount * 4);
    ByteVector values = input_of(comm, DataType::float32, 1);
    memory.write(stream, values);
    ErrorFeedback on_host(kCount);
    states[rank] = ErrorFeedback(kCount);
    CallOptions options{.compression = minmax({.bits = 2}), .error_feedback = on_host, .algorithm = Algorithm::sra};
    comm.all_reduce(values.data(), values.data(), kCount, DataType::float32, options);
    options.error_feedback = states[rank];
    options.stream = stream;
    comm.all_reduce(memory.data(), memory.data(), kCount, DataType::float32, options);
    expected[rank] = residual_of(on_host);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(residual_of(states[rank]) == expected[rank]);
  states = {};
}

// One rank's jobs do not run, so that the call fails after some of the other's have.
TEST_P(DeviceFeedbacks, a_call_that_fails_leaves_the_residual_as_it_was) {
  std::barrier phase(2);
  expect_success(2, [&](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kCount * 4);
    Communicator failing = comm.dup();
    ErrorFeedback feedback(kCount);
    const CallOptions options{
        .compression = minmax({.bits = 2}), .error_feedback = feedback, .algorithm = Algorithm::sra, .stream = stream};
    memory.write(stream, input_of(comm, DataType::float32, 1));
    failing.all_reduce(memory.data(), memory.data(), kCount, DataType::float32, options);
    const std::vector<float> before = residual_of(feedback);
    memory.write(stream, input_of(comm, DataType::float32, 2));
    phase.arrive_and_wait();
    if (comm.rank() == 0) {
      const std::size_t launched = fake::launches();
      const Work lost = failing.all_reduce_async(memory.data(), memory.data(), kCount, DataType::float32, options);
      while (fake::launches() == launched) static_cast<void>(failing.in_flight());
      failing.abort("enough");
      EXPECT_EQ(error_of([&] { lost.wait(); }).kind, ErrorKind::aborted);
    }
    phase.arrive_and_wait();
    EXPECT_EQ(error_of([&] { failing.barrier(); }).kind, ErrorKind::aborted);
    EXPECT_EQ(feedback.counter(), 1u);
    EXPECT_TRUE(residual_of(feedback) == before);
  });
}

TEST_P(DeviceFeedbacks, without_memory_on_the_device_the_call_is_staged) {
  expect_success(2, [](Communicator& comm) {
    BothStates both(comm, DataType::float32);
    if (comm.rank() == 0) fake::fail("cuMemAlloc", Code::out_of_memory);
    both.expect_equal_step({.compression = minmax({.bits = 2})});
    both.expect_equal_step({.compression = minmax({.bits = 2})});
    both.expect_equal_residuals();
  });
}

TEST_P(DeviceFeedbacks, a_state_whose_device_fails_says_so_and_can_be_reset) {
  expect_success(2, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kCount * 4);
    ErrorFeedback feedback(kCount);
    memory.write(stream, input_of(comm, DataType::float32, 1));
    comm.all_reduce(memory.data(), memory.data(), kCount, DataType::float32,
                    {.compression = minmax({.bits = 2}),
                     .error_feedback = feedback,
                     .algorithm = Algorithm::sra,
                     .stream = stream});
    comm.barrier();
    if (comm.rank() == 0) {
      fake::fail("cuMemcpyDtoHAsync", static_cast<Code>(700));
      const ErrorInfo failed = error_of([&] { static_cast<void>(feedback.residual()); });
      EXPECT_EQ(failed.kind, ErrorKind::aborted);
      EXPECT_NE(failed.message.find("can't be copied from the device"), std::string::npos) << failed.message;
    }
    comm.barrier();
    feedback.reset();
    EXPECT_EQ(residual_of(feedback), std::vector<float>(kCount));
  });
}

}  // namespace
}  // namespace qccl::testing
