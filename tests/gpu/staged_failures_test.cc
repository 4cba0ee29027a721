// Device calls that are wrong or fail, in every state: each ends with its reason, and its memory stays its own until no
// copy is under way.
#include <algorithm>
#include <atomic>
#include <iterator>
#include <latch>
#include <thread>

#include "gpu/device_job.h"
#include "support/error_of.h"

namespace qccl::testing {
namespace {

using device::Code;

class StagedFailures : public DeviceCalls {};
INSTANTIATE_TEST_SUITE_P(All, StagedFailures, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

constexpr std::size_t kCount = 16'000;  // few enough that the call is staged
constexpr std::size_t kBytes = kCount * sizeof(float);

void all_reduce(Communicator& comm, const DeviceBuffer& memory, const ProgramStream& stream,
                Milliseconds timeout = Milliseconds(60'000)) {
  comm.all_reduce(memory.data(), memory.data(), kCount, DataType::float32, {.timeout = timeout, .stream = stream});
}

Work post(Communicator& comm, const DeviceBuffer& memory, const ProgramStream& stream) {
  return comm.all_reduce_async(memory.data(), memory.data(), kCount, DataType::float32, {.stream = stream});
}

bool contains(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

TEST_P(StagedFailures, wrong_buffers_are_refused_by_name_and_the_group_stays_usable) {
  expect_success(2, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer good(kBytes), managed(kBytes, fake::Kind::managed), pinned(kBytes, fake::Kind::pinned);
    const DeviceBuffer elsewhere(kBytes, fake::Kind::device, 1);
    std::vector<float> own(kCount);
    const auto refusal = [&](const void* input, void* output, DeviceStream used) {
      return error_of([&] { comm.all_reduce(input, output, kCount, DataType::float32, {.stream = used}); });
    };
    struct Expected {
      ErrorInfo error;
      const char* words;
    };
    const Expected all[] = {
        {refusal(managed.data(), good.data(), stream), "the input is managed memory"},
        {refusal(good.data(), managed.data(), stream), "the output is managed memory"},
        {refusal(good.data(), pinned.data(), stream),
         "the output is pinned host memory, but the input is device memory"},
        {refusal(good.data(), elsewhere.data(), stream), "the output is on device 1, but the stream is device 0's"},
        {refusal(own.data(), own.data(), stream), "the input is memory that the device's driver does not know"},
        {refusal(good.data(), good.data(), {7, stream.handle()}), "there is no device 7: this process sees 2"},
    };
    for (const Expected& each : all) {
      EXPECT_EQ(each.error.kind, ErrorKind::invalid_argument);
      EXPECT_EQ(each.error.operation, "all_reduce");
      EXPECT_TRUE(contains(each.error.message, each.words)) << each.error.message;
    }
    all_reduce(comm, good, stream);
  });
}

TEST_P(StagedFailures, a_peer_may_leave_while_the_output_is_copied_back) {
  constexpr std::size_t kFew = 100;  // on the board, where ranks share memory
  std::latch holds(1);
  expect_success(2, [&](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kFew);
    memory.write(stream, ByteVector(kFew, std::byte{1}));
    const auto add = [&] {
      return comm.all_reduce_async(memory.data(), memory.data(), kFew, DataType::uint8, {.stream = stream});
    };
    if (comm.rank() == 1) {
      holds.wait();
      add().wait();
      return comm.close();
    }
    const Work sum = add();
    await_state(comm, 0, "waits for rank 1");
    const auto streams = fake::library_streams();  // rank 1 has none yet
    for (CUstream_st* const each : streams) fake::hold(each);
    holds.count_down();
    await_state(comm, 0, "the copy of its output");
    while (comm.failed().empty()) std::this_thread::yield();
    for (CUstream_st* const each : streams) fake::release(each);
    sum.wait();
    EXPECT_TRUE(memory.read(stream) == ByteVector(kFew, std::byte{2}));
    // Nothing has failed so far: the next call is the first that misses rank 1.
    const std::string next = error_of([&] { add().wait(); }).message;
    EXPECT_TRUE(contains(next, "rank 1 can't take part")) << next;
  });
}

TEST_P(StagedFailures, a_call_in_place_that_fails_leaves_its_memory_as_it_was) {
  std::latch started(2);  // until then a failure may end the other rank's start
  expect_success(2, [&](Communicator& comm) {
    started.arrive_and_wait();
    const ProgramStream stream;
    const ByteVector input(kBytes, std::byte{7});
    const bool is_late = comm.rank() == 1;  // it never makes the call
    for (const fake::Kind kind : {fake::Kind::device, fake::Kind::pinned}) {
      Communicator group = comm.dup();
      group.barrier();
      const DeviceBuffer memory(kBytes, kind);
      memory.write(stream, input);
      if (!is_late) {
        const ErrorInfo failed = error_of([&] {
          group.all_reduce(memory.data(), memory.data(), kCount, DataType::float32,
                           {.timeout = Milliseconds(100), .stream = stream, .keep_input = true});
        });
        EXPECT_EQ(failed.kind, ErrorKind::deadline_exceeded);
        EXPECT_EQ(memory.read(stream), input);
      }
      comm.barrier();
    }
  });
}

TEST_P(StagedFailures, a_call_in_a_captured_stream_is_unsupported) {
  expect_success(1, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kBytes);
    fake::capture(stream.handle(), true);
    const ErrorInfo refused = error_of([&] { all_reduce(comm, memory, stream); });
    EXPECT_EQ(refused.kind, ErrorKind::unsupported);
    EXPECT_TRUE(contains(refused.message, "CUDA graph")) << refused.message;
    fake::capture(stream.handle(), false);
    all_reduce(comm, memory, stream);
  });
}

TEST_P(StagedFailures, device_memory_against_host_memory_is_a_mismatch_that_names_both_calls) {
  const auto failures = run_threads(2, options(), [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kBytes);
    std::vector<float> own(kCount);
    const ErrorInfo failed = error_of([&] {
      if (comm.rank() == 0) all_reduce(comm, memory, stream);
      if (comm.rank() == 1) comm.all_reduce(own);
    });
    EXPECT_EQ(failed.kind, ErrorKind::misuse);
    EXPECT_TRUE(contains(failed.message, "device memory")) << failed.message;
    EXPECT_TRUE(contains(failed.message, "rank 0") && contains(failed.message, "rank 1")) << failed.message;
  });
  EXPECT_EQ(failures, std::vector<std::string>(2));
}

TEST_P(StagedFailures, an_input_that_never_comes_ends_at_the_deadline_and_blames_its_rank) {
  std::latch started(2);  // until then a failure may end the other rank's start
  expect_success(2, [&](Communicator& comm) {
    started.arrive_and_wait();
    const ProgramStream stream;
    const DeviceBuffer memory(kBytes);
    if (comm.rank() == 0) fake::hold(stream.handle());
    const Milliseconds timeout(comm.rank() == 0 ? 100 : 60'000);
    const ErrorInfo failed = error_of([&] { all_reduce(comm, memory, stream, timeout); });
    EXPECT_EQ(failed.kind, ErrorKind::deadline_exceeded);
    EXPECT_EQ(failed.peer, 0);
    EXPECT_TRUE(contains(failed.message, "waited for the work before it on its stream")) << failed.message;
  });
}

// Kernel and peer together take longer than the call may, each alone does not.
TEST_P(StagedFailures, the_deadline_counts_from_the_input) {
  constexpr Milliseconds kTimeout(1000), kLate(600);
  std::atomic<bool> has_begun{false};
  expect_success(2, [&](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kBytes);
    if (comm.rank() == 1) {
      while (!has_begun) std::this_thread::yield();
      std::this_thread::sleep_for(kLate);
      return all_reduce(comm, memory, stream);
    }
    fake::launch(stream.handle(), memory.data(), [=](std::byte*) { std::this_thread::sleep_for(kLate); });
    const Work work = comm.all_reduce_async(memory.data(), memory.data(), kCount, DataType::float32,
                                            {.timeout = kTimeout, .stream = stream});
    await_state(comm, 0, "waits for rank 1");
    has_begun = true;
    work.wait();
  });
}

TEST_P(StagedFailures, a_call_that_awaits_its_input_ends_at_once_when_its_group_is_aborted) {
  std::latch posted(2);
  expect_success(2, [&](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kBytes);
    fake::hold(stream.handle());
    const Work work = post(comm, memory, stream);
    posted.arrive_and_wait();
    if (comm.rank() == 0) comm.abort("enough");
    const ErrorInfo failed = error_of([&] { work.wait(); });
    EXPECT_EQ(failed.kind, ErrorKind::aborted);
    EXPECT_TRUE(contains(failed.message, "enough")) << failed.message;
  });
}

// One rank, so that its two streams are the only ones of the library.
TEST_P(StagedFailures, a_failed_call_does_not_end_before_the_copy_of_its_input) {
  run_threads(1, options(), [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kBytes);
    all_reduce(comm, memory, stream);
    CUstream_st* const inward = fake::library_streams().at(0);
    fake::hold(inward);
    const Work work = post(comm, memory, stream);
    await_state(comm, 0, "waits for the copy of its input");
    comm.abort("enough");
    EXPECT_EQ(comm.in_flight().size(), 1u);
    EXPECT_FALSE(work.done());
    fake::release(inward);
    EXPECT_EQ(error_of([&] { work.wait(); }).kind, ErrorKind::aborted);
  });
}

TEST_P(StagedFailures, a_call_whose_output_is_on_its_way_ends_well_after_its_copy_when_its_group_is_aborted) {
  run_threads(1, options(), [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kBytes);
    all_reduce(comm, memory, stream);
    CUstream_st* const outward = fake::library_streams().at(1);
    fake::hold(outward);
    const Work work = post(comm, memory, stream);
    await_state(comm, 0, "waits for the copy of its output");
    comm.abort("enough");
    EXPECT_EQ(comm.in_flight().size(), 1u);
    EXPECT_FALSE(work.done());
    fake::release(outward);
    work.wait();
  });
}

TEST_P(StagedFailures, a_call_that_ends_well_in_a_failed_group_keeps_its_error_feedback) {
  std::latch holds(1), other_has_ended(1);
  run_threads(2, options(), [&](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kBytes);
    ByteVector values(kBytes);
    for (std::size_t i = 0; i < kCount; ++i) set_element(DataType::float32, values.data(), i, 0.3);
    memory.write(stream, values);
    const ErrorFeedback feedback(kCount);
    const auto add = [&] {
      return comm.all_reduce_async(
          memory.data(), memory.data(), kCount, DataType::float32,
          {.compression = topk({.density = 0.01}), .error_feedback = feedback, .stream = stream});
    };
    if (comm.rank() == 1) {
      holds.wait();
      add().wait();
      other_has_ended.count_down();
      return;
    }
    const Work sum = add();
    await_state(comm, 0, "waits for rank 1");
    const auto streams = fake::library_streams();  // rank 1 has none yet
    for (CUstream_st* const each : streams) fake::hold(each);
    holds.count_down();
    await_state(comm, 0, "the copy of its output");
    other_has_ended.wait();
    comm.abort("enough");
    for (CUstream_st* const each : streams) fake::release(each);
    sum.wait();
    EXPECT_EQ(feedback.counter(), 1u);
    EXPECT_GE(std::ranges::max(feedback.residual()), 0.3f) << "most elements have not been sent";
  });
}

TEST_P(StagedFailures, a_communicator_that_is_dropped_ends_its_calls_first) {
  expect_success(2, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kBytes);
    Work work;
    {
      Communicator other = comm.dup();
      work = post(other, memory, stream);
    }
    EXPECT_TRUE(work.done());
    EXPECT_FALSE(work.error());
  });
}

TEST_P(StagedFailures, a_device_that_fails_ends_the_call_on_all_ranks_with_its_words) {
  for (const char* const function : {"cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"}) {
    fake::fail(function, static_cast<Code>(700));
    std::latch started(2);  // until then a failure may end the other rank's start
    expect_success(2, [&](Communicator& comm) {
      started.arrive_and_wait();
      const ProgramStream stream;
      const DeviceBuffer memory(kBytes);
      const Work work = post(comm, memory, stream);
      const ErrorInfo failed = error_of([&] {
        work.wait();
        comm.barrier();
      });
      EXPECT_EQ(failed.kind, ErrorKind::aborted);
      EXPECT_TRUE(contains(failed.message, std::string("device 0: ") + function + ": error 700")) << failed.message;
    });
  }
}

// A fault of rank 0's device, which then refuses everything, as a GPU does until its process ends.
TEST_P(StagedFailures, a_device_with_a_fault_ends_calls_in_every_state_and_refuses_later_ones) {
  constexpr const char* kWords[] = {"the work before it on its stream", "the copy of its input", "rank 1",
                                    "the copy of its output"};
  fake::repair(0);  // where a device can have no fault and go on, this ends the test before a rank waits
  for (std::size_t state = 0; state < std::size(kWords); ++state) {
    std::latch posts(1), ended(2);
    expect_success(2, [&](Communicator& comm) {
      const int device = comm.rank();
      const ProgramStream stream(device);
      const DeviceBuffer memory(kBytes, fake::Kind::device, device);
      if (comm.rank() == 1) posts.wait();
      std::vector<CUstream_st*> held;
      if (comm.rank() == 0) {
        static_cast<void>(comm.stream_order(0));  // opens the device
        if (state == 0) held = {stream.handle()};
        if (state == 1 || state == 3) held = {fake::library_streams().at(state == 1 ? 0 : 1)};
        for (CUstream_st* const each : held) fake::hold(each);
        if (state != 2) posts.count_down();
      }
      const Work work = post(comm, memory, stream);
      if (comm.rank() == 0) {
        await_state(comm, 0, kWords[state]);
        fake::fault(0, static_cast<Code>(700));
        if (state == 2) posts.count_down();
      }
      const ErrorInfo failed = error_of([&] {
        work.wait();
        comm.barrier();
      });
      EXPECT_EQ(failed.kind, ErrorKind::aborted) << kWords[state];
      EXPECT_TRUE(contains(failed.message, "device 0: ") && contains(failed.message, ": error 700")) << failed.message;
      for (CUstream_st* const each : held) fake::release(each);
      const ErrorInfo later = error_of([&] { all_reduce(comm, memory, stream); });
      EXPECT_EQ(later.kind, ErrorKind::aborted) << kWords[state];
      ended.arrive_and_wait();
      if (comm.rank() == 0) fake::repair(0);
    });
  }
}

TEST_P(StagedFailures, a_host_that_can_not_pin_memory_copies_through_pageable_memory) {
  fake::fail("cuMemHostAlloc", Code::out_of_memory);
  expect_success(1, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kBytes), output(kBytes);
    memory.write(stream, ByteVector(kBytes, std::byte{1}));
    comm.all_reduce(memory.data(), output.data(), kCount, DataType::float32, {.stream = stream});
    EXPECT_TRUE(output.read(stream) == ByteVector(kBytes, std::byte{1}));
  });
}

TEST_P(StagedFailures, a_driver_that_fails_when_a_call_is_made_refuses_it_and_the_next_one_works) {
  expect_success(1, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kBytes);
    for (const char* const function : {"cuStreamCreateWithPriority", "cuEventCreate", "cuEventRecord",
                                       "cuPointerGetAttributes", "cuStreamIsCapturing"}) {
      fake::fail(function, Code::out_of_memory);
      const ErrorInfo refused = error_of([&] { all_reduce(comm, memory, stream); });
      EXPECT_EQ(refused.kind, ErrorKind::resource_exhausted);
      EXPECT_TRUE(contains(refused.message, function)) << refused.message;
    }
    all_reduce(comm, memory, stream);
  });
}

TEST_P(StagedFailures, warm_calls_take_nothing_new_from_the_driver) {
  expect_success(1, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kBytes);
    all_reduce(comm, memory, stream);
    const std::size_t before = fake::live_objects();
    for (int i = 0; i < 20; ++i) all_reduce(comm, memory, stream);
    EXPECT_EQ(fake::live_objects(), before);
  });
}

}  // namespace
}  // namespace qccl::testing
