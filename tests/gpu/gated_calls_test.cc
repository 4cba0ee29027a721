// Work::block(): a stream waits for a call, and the host goes on.
#include <array>
#include <atomic>
#include <latch>
#include <memory>
#include <thread>

#include "gpu/device_job.h"
#include "support/error_of.h"

namespace qccl::testing {
namespace {

using fake::Hazard;

class GatedCalls : public DeviceCalls {
 protected:
  void TearDown() override {
    for (const Hazard each : fake::kHazards) fake::set_hazard(each, false);
    DeviceCalls::TearDown();
  }
};
INSTANTIATE_TEST_SUITE_P(All, GatedCalls, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

constexpr std::size_t kFew = 1000;      // a staged call
constexpr std::size_t kMany = 100'000;  // has lanes, where there are kernels

template <class T>
ByteVector bytes_of(std::size_t count, T value) {
  const std::vector<T> elements(count, value);
  const auto* const first = reinterpret_cast<const std::byte*>(elements.data());
  return {first, first + count * sizeof(T)};
}

Work add(Communicator& comm, const DeviceBuffer& memory, const ProgramStream& stream) {
  return comm.all_reduce_async(memory.data(), memory.data(), memory.bytes() / sizeof(float), DataType::float32,
                               {.stream = stream});
}

TEST_P(GatedCalls, the_host_goes_on_and_the_stream_sees_the_sum) {
  std::array<std::latch, 2> posted{std::latch(1), std::latch(1)};
  expect_success(2, [&](Communicator& comm) {
    for (const std::size_t count : {kFew, kMany}) {
      std::latch& is_posted = posted[count == kMany];
      const ProgramStream stream;
      const DeviceBuffer memory(count * sizeof(float));
      memory.write(stream, bytes_of(count, static_cast<float>(comm.rank() + 1)));
      EXPECT_EQ(comm.stream_order(0), StreamOrder::gate);
      if (comm.rank() == 1) is_posted.wait();  // so that the other rank's call can't have ended
      const Work work = add(comm, memory, stream);
      work.block(stream);
      if (comm.rank() == 0) is_posted.count_down();
      EXPECT_EQ(memory.read(stream), bytes_of(count, 3.0F));
      work.wait();
    }
  });
}

TEST_P(GatedCalls, calls_follow_each_other_on_a_stream_without_the_host) {
  constexpr int kCalls = 50;
  expect_success(3, [&](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kFew * sizeof(float));
    memory.write(stream, bytes_of(kFew, 1.0F));
    for (int i = 0; i < kCalls; ++i) {
      add(comm, memory, stream).block(stream);
      fake::launch(stream.handle(), memory.data(), [](std::byte* stored) {
        auto* const values = reinterpret_cast<float*>(stored);
        for (std::size_t k = 0; k < kFew; ++k) values[k] = values[k] / 3 + 1;
      });
    }
    EXPECT_EQ(memory.read(stream), bytes_of(kFew, 1.0F + kCalls));
  });
}

TEST_P(GatedCalls, a_stream_that_waits_behind_others_does_not_run_out_of_time) {
  static constexpr Milliseconds kTimeout(2000);
  expect_success(2, [&](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kFew * sizeof(float));
    memory.write(stream, bytes_of(kFew, 1.0F));
    std::vector<Work> works;
    const CallOptions options{.timeout = kTimeout, .stream = stream};
    for (int i = 0; i < 3; ++i) {
      works.push_back(comm.all_reduce_async(memory.data(), memory.data(), kFew, DataType::float32, options));
      works.back().block(stream);
      fake::enqueue(stream.handle(), [] { std::this_thread::sleep_for(kTimeout * 2 / 3); });  // a long kernel
    }
    for (const Work& each : works) each.wait();
    EXPECT_EQ(memory.read(stream), bytes_of(kFew, 8.0F));
  });
}

TEST_P(GatedCalls, messages_of_a_group_are_posted_before_their_stream_waits) {
  expect_success(3, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer sent(kFew), received(kFew);
    sent.write(stream, ByteVector(kFew, std::byte(comm.rank())));
    const int left = (comm.rank() + 2) % 3, right = (comm.rank() + 1) % 3;
    const Work in = comm.recv_async(received.data(), kFew, DataType::uint8, left, {.stream = stream});
    const Work out = comm.send_async(sent.data(), kFew, DataType::uint8, right, {.stream = stream});
    in.block(stream);
    out.block(stream);
    EXPECT_EQ(received.read(stream), ByteVector(kFew, std::byte(left)));
  });
}

TEST_P(GatedCalls, a_call_that_fails_fills_its_output_and_lets_the_stream_go_on) {
  for (const std::size_t count : {kFew, kMany}) {
    std::atomic<int> begun{0};
    expect_success(2, [&](Communicator& comm) {
      const ProgramStream stream;
      const DeviceBuffer memory(count * sizeof(float));
      memory.write(stream, bytes_of(count, 1.0F));
      if (comm.rank() == 1) {
        while (begun == 0) std::this_thread::yield();
        return comm.abort("the test");
      }
      const Work work = add(comm, memory, stream);
      work.block(stream);
      await_state(comm, 0, "rank 1");
      ++begun;
      EXPECT_EQ(memory.read(stream), ByteVector(memory.bytes(), std::byte{0xFF}));
      EXPECT_EQ(error_of([&] { work.wait(); }).kind, ErrorKind::aborted);
      EXPECT_EQ(error_of([&] { work.block(stream); }).kind, ErrorKind::aborted);
    });
  }
}

TEST_P(GatedCalls, an_abort_opens_the_gate_of_a_call_whose_stream_has_not_come) {
  std::latch posted(2);
  expect_success(2, [&](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kFew * sizeof(float));
    fake::hold(stream.handle());
    const Work work = add(comm, memory, stream);
    work.block(stream);
    posted.arrive_and_wait();
    comm.abort("the test");
    EXPECT_EQ(error_of([&] { work.wait(); }).kind, ErrorKind::aborted);
    fake::release(stream.handle());
    EXPECT_EQ(memory.read(stream), ByteVector(memory.bytes(), fake::kPoison)) << "nothing had been written there";
  });
}

TEST_P(GatedCalls, a_call_that_fails_gives_back_the_input_that_it_keeps) {
  std::latch ended(1);
  expect_success(2, [&](Communicator& comm) {
    if (comm.rank() == 1) return ended.wait();
    const ProgramStream stream;
    const DeviceBuffer memory(kFew * sizeof(float));
    memory.write(stream, bytes_of(kFew, 1.0F));
    const Work work = comm.all_reduce_async(memory.data(), memory.data(), kFew, DataType::float32,
                                            {.stream = stream, .keep_input = true});
    work.block(stream);
    await_state(comm, 0, "rank 1");
    comm.abort("the test");
    EXPECT_EQ(memory.read(stream), bytes_of(kFew, 1.0F));
    ended.count_down();
  });
}

TEST_P(GatedCalls, a_result_that_is_on_its_way_when_the_group_fails_is_kept) {
  std::latch ended(1);
  expect_success(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      const std::vector<float> sent(kFew, 5.0F);
      for (int messages = 0; messages < 2; ++messages) comm.send(sent.data(), kFew, DataType::float32, 0);
      return ended.wait();
    }
    const ProgramStream stream;
    const DeviceBuffer memory(kFew * sizeof(float));
    comm.recv_async(memory.data(), kFew, DataType::float32, 1, {.stream = stream}).block(stream);  // tries the stream
    fake::synchronize(stream.handle());
    fake::hold(stream.handle());
    const Work work = comm.recv_async(memory.data(), kFew, DataType::float32, 1, {.stream = stream});
    const auto streams = fake::library_streams();
    for (CUstream_st* const each : streams) fake::hold(each);
    fake::release(stream.handle());
    work.block(stream);
    await_state(comm, 0, "the copy of its output");
    comm.abort("the test");
    for (CUstream_st* const each : streams) fake::release(each);
    EXPECT_EQ(memory.read(stream), bytes_of(kFew, 5.0F));
    EXPECT_NO_THROW(work.wait());
    ended.count_down();
  });
}

TEST_P(GatedCalls, a_deadline_opens_the_gate) {
  std::latch opened(1);
  expect_success(2, [&](Communicator& comm) {
    if (comm.rank() == 1) return opened.wait();
    const ProgramStream stream;
    const DeviceBuffer memory(kFew * sizeof(float));
    memory.write(stream, bytes_of(kFew, 1.0F));
    comm.recv_async(memory.data(), memory.bytes(), DataType::uint8, 1, {.timeout = Milliseconds(50), .stream = stream})
        .block(stream);
    fake::synchronize(stream.handle());
    opened.count_down();
  });
}

TEST_P(GatedCalls, streams_of_a_single_queue_wait_on_the_host) {
  fake::set_queues(1);
  expect_success(2, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kFew * sizeof(float));
    memory.write(stream, bytes_of(kFew, 1.0F));
    EXPECT_EQ(comm.stream_order(0), StreamOrder::host);
    const Work work = add(comm, memory, stream);
    work.block(stream);
    EXPECT_TRUE(work.done());
    EXPECT_EQ(memory.read(stream), bytes_of(kFew, 2.0F));
  });
}

// Some wait themselves, and for others the host does.
TEST_P(GatedCalls, results_are_right_where_streams_share_queues_with_the_librarys) {
  constexpr std::size_t kStreams = 12;
  for (const std::size_t queues : {2u, 8u}) {
    fake::set_queues(queues);
    std::latch opened(2);  // a stream that waits may hold up those that a rank makes later
    expect_success(2, [&](Communicator& comm) {
      EXPECT_EQ(comm.stream_order(0), StreamOrder::gate);
      opened.arrive_and_wait();
      std::vector<std::unique_ptr<ProgramStream>> streams;
      std::vector<std::unique_ptr<DeviceBuffer>> memory;
      std::vector<Work> works;
      for (std::size_t i = 0; i < kStreams; ++i) {
        streams.push_back(std::make_unique<ProgramStream>());
        memory.push_back(std::make_unique<DeviceBuffer>(kFew * sizeof(float)));
        memory[i]->write(*streams[i], bytes_of(kFew, static_cast<float>(i + 1)));
        works.push_back(add(comm, *memory[i], *streams[i]));
      }
      for (std::size_t i = 0; i < kStreams; ++i) works[i].block(*streams[i]);
      for (std::size_t i = 0; i < kStreams; ++i) {
        EXPECT_EQ(memory[i]->read(*streams[i]), bytes_of(kFew, 2 * static_cast<float>(i + 1)));
      }
    });
  }
}

TEST_P(GatedCalls, a_thread_that_frees_memory_later_does_not_hang_the_job) {
  if (GetParam() == TransportChoice::tcp) return;  // once is enough: it takes ten seconds
  std::latch tried(2), frees(1);
  // Where hazards can't be had, this ends the test before a rank waits.
  for (const bool on : {true, false}) fake::set_hazard(Hazard::locking_free, on);
  expect_success(2, [&](Communicator& comm) {
    EXPECT_EQ(comm.stream_order(0), StreamOrder::gate);
    tried.arrive_and_wait();
    if (comm.rank() == 1) {
      frees.wait();
      const ByteVector data(kFew * sizeof(float));
      comm.send(data.data(), data.size(), DataType::uint8, 0);
      return comm.barrier();
    }
    const ProgramStream stream;
    const DeviceBuffer memory(kFew * sizeof(float));
    auto spare = allocate_on_device(16, 0);
    const Work work = comm.recv_async(memory.data(), memory.bytes(), DataType::uint8, 1, {.stream = stream});
    work.block(stream);
    await_state(comm, 0, "rank 1");
    fake::set_hazard(Hazard::locking_free, true);
    std::thread freeing([&] {
      frees.count_down();
      spare.reset();
    });
    fake::synchronize(stream.handle());
    freeing.join();
    fake::set_hazard(Hazard::locking_free, false);
    comm.barrier();
  });
}

}  // namespace
}  // namespace qccl::testing
