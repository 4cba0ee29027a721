// Messages and calls in groups on device memory, and the order of device calls among others.
#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>

#include "gpu/device_job.h"

namespace qccl::testing {
namespace {

class StagedMessages : public DeviceCalls {};
INSTANTIATE_TEST_SUITE_P(All, StagedMessages, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

ByteVector bytes_of(std::size_t count, int seed) {
  ByteVector bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(seed) * 7);
  }
  return bytes;
}

TEST_P(StagedMessages, messages_of_every_size_arrive_in_device_memory) {
  expect_success(2, [](Communicator& comm) {
    const ProgramStream stream;
    const MessageOptions options{.stream = stream};
    for (const std::size_t count : {0u, 1u, 1000u, 64u << 10, 300'007u}) {
      const DeviceBuffer memory(count);
      if (comm.rank() == 0) {
        memory.write(stream, bytes_of(count, 1));
        comm.send(memory.data(), count, DataType::uint8, 1, options);
      } else {
        EXPECT_EQ(comm.recv(memory.data(), count, DataType::uint8, kAnySource, options), 0);
        EXPECT_TRUE(memory.read(stream) == bytes_of(count, 1));
      }
    }
  });
}

TEST_P(StagedMessages, compressed_messages_are_encoded_on_the_host) {
  constexpr std::size_t kCount = 100'003;
  expect_success(2, [](Communicator& comm) {
    const ProgramStream stream;
    ByteVector plain(kCount * sizeof(float)), expected(plain.size());
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 1013) - 500;
    std::memcpy(plain.data(), values.data(), plain.size());
    const DeviceBuffer memory(plain.size());
    MessageOptions options{.compression = minmax({.bits = 4})};
    if (comm.rank() == 0) {
      comm.send(plain.data(), kCount, DataType::float32, 1, options);
      memory.write(stream, plain);
      options.stream = stream;
      options.error_feedback = ErrorFeedback(kCount);
      comm.send(memory.data(), kCount, DataType::float32, 1, options);
      EXPECT_EQ(options.error_feedback.counter(), 1u);
    } else {
      comm.recv(expected.data(), kCount, DataType::float32, 0, options);
      options.stream = stream;
      comm.recv(memory.data(), kCount, DataType::float32, 0, options);
      EXPECT_TRUE(memory.read(stream) == expected);
      EXPECT_FALSE(expected == plain);
    }
  });
}

TEST_P(StagedMessages, a_message_may_go_from_device_to_host_memory_and_back) {
  constexpr std::size_t kCount = 100'003;
  expect_success(2, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kCount);
    ByteVector own = bytes_of(kCount, comm.rank());
    memory.write(stream, own);
    if (comm.rank() == 0) {
      comm.send(memory.data(), kCount, DataType::uint8, 1, {.stream = stream});
      comm.recv(memory.data(), kCount, DataType::uint8, 1, {.stream = stream});
      EXPECT_TRUE(memory.read(stream) == bytes_of(kCount, 1));
    } else {
      ByteVector arrived(kCount);
      comm.recv(arrived.data(), kCount, DataType::uint8, 0);
      EXPECT_TRUE(arrived == bytes_of(kCount, 0));
      comm.send(own.data(), kCount, DataType::uint8, 0);
    }
  });
}

TEST_P(StagedMessages, a_rank_sends_itself_what_its_stream_has_yet_to_write) {
  constexpr std::size_t kCount = 5000;
  expect_success(1, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer from(kCount), to(kCount);
    for (const bool receives_first : {false, true}) {
      fake::hold(stream.handle());
      from.write(stream, bytes_of(kCount, receives_first ? 1 : 2));
      const auto send = [&] { return comm.send_async(from.data(), kCount, DataType::uint8, 0, {.stream = stream}); };
      Work sent = receives_first ? Work() : send();
      const Work received = comm.recv_async(to.data(), kCount, DataType::uint8, 0, {.stream = stream});
      if (receives_first) sent = send();
      fake::release(stream.handle());
      sent.wait();
      received.wait();
      EXPECT_TRUE(to.read(stream) == bytes_of(kCount, receives_first ? 1 : 2));
    }
  });
}

// The earlier content of the receive buffer may still be in use when the message is there.
TEST_P(StagedMessages, a_receive_buffer_is_not_written_before_the_work_that_reads_it) {
  constexpr std::size_t kCount = 1000;
  expect_success(2, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kCount);
    if (comm.rank() == 0) {
      memory.write(stream, bytes_of(kCount, 5));
      comm.send(memory.data(), kCount, DataType::uint8, 1, {.stream = stream});
      comm.barrier();
      return;
    }
    memory.write(stream, bytes_of(kCount, 6));
    fake::synchronize(stream.handle());
    ByteVector earlier(kCount);
    fake::hold(stream.handle());
    fake::launch(stream.handle(), memory.data(),
                 [&earlier](std::byte* stored) { std::copy_n(stored, kCount, earlier.begin()); });
    const Work received = comm.recv_async(memory.data(), kCount, DataType::uint8, 0, {.stream = stream});
    comm.barrier();  // by now the message has arrived
    EXPECT_FALSE(received.done());
    fake::release(stream.handle());
    received.wait();
    EXPECT_TRUE(earlier == bytes_of(kCount, 6));
    EXPECT_TRUE(memory.read(stream) == bytes_of(kCount, 5));
  });
}

std::vector<float> values_in(const DeviceBuffer& memory, const ProgramStream& stream) {
  const ByteVector bytes = memory.read(stream);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void write_values(const DeviceBuffer& memory, const ProgramStream& stream, float value) {
  const std::vector<float> values(memory.bytes() / sizeof(float), value);
  fake::write(stream.handle(), memory.data(), values.data(), memory.bytes());
}

TEST_P(StagedMessages, calls_in_a_group_on_both_kinds_of_memory_end_together) {
  constexpr std::size_t kCount = 30'001;
  expect_success(3, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer sum(kCount * sizeof(float)), out(kCount * sizeof(float)), in(kCount * sizeof(float));
    std::vector<float> on_host(kCount, 2.0F);
    const int next = (comm.rank() + 1) % 3, previous = (comm.rank() + 2) % 3;
    write_values(sum, stream, static_cast<float>(comm.rank()));
    write_values(out, stream, static_cast<float>(10 + comm.rank()));
    comm.group_start();
    comm.all_reduce(sum.data(), sum.data(), kCount, DataType::float32, {.stream = stream});
    comm.send(out.data(), kCount, DataType::float32, next, {.stream = stream});
    comm.recv(in.data(), kCount, DataType::float32, previous, {.stream = stream});
    comm.all_reduce(on_host);
    comm.group_end().wait();
    EXPECT_EQ(values_in(sum, stream), std::vector<float>(kCount, 3.0F));
    EXPECT_EQ(values_in(in, stream), std::vector<float>(kCount, static_cast<float>(10 + previous)));
    EXPECT_EQ(on_host, std::vector<float>(kCount, 6.0F));
  });
}

TEST_P(StagedMessages, a_group_that_is_cancelled_gives_its_memory_back) {
  expect_success(2, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(4000);
    comm.group_start();
    comm.all_reduce(memory.data(), memory.data(), 1000, DataType::float32, {.stream = stream});
    EXPECT_THROW(comm.all_reduce(nullptr, nullptr, 1000, DataType::float32), Error);
    EXPECT_THROW(comm.group_end(), Error);
    write_values(memory, stream, 1.0F);
    comm.all_reduce(memory.data(), memory.data(), 1000, DataType::float32, {.stream = stream});
    EXPECT_EQ(values_in(memory, stream), std::vector<float>(1000, 2.0F));
  });
}

TEST_P(StagedMessages, coalesced_calls_take_device_memory) {
  expect_success(2, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer first(400), second(400'000);
    write_values(first, stream, 1.0F);
    write_values(second, stream, 2.0F);
    const CallBuffers buffers[] = {{first.data(), first.data(), 100}, {second.data(), second.data(), 100'000}};
    comm.all_reduce_coalesced_async(buffers, DataType::float32, {.stream = stream}).wait();
    EXPECT_EQ(values_in(first, stream), std::vector<float>(100, 2.0F));
    EXPECT_EQ(values_in(second, stream), std::vector<float>(100'000, 4.0F));
  });
}

TEST_P(StagedMessages, a_call_whose_input_is_late_and_later_calls_have_their_own_results) {
  constexpr std::size_t kCount = 1000;
  expect_success(3, [](Communicator& comm) {
    const ProgramStream late, early;
    const DeviceBuffer first(kCount * 4), second(kCount * 4);
    std::vector<float> on_host(kCount, 1.0F);
    if (comm.rank() == 1) fake::hold(late.handle());
    write_values(first, late, 1.0F);
    write_values(second, early, 5.0F);
    const Work one = comm.all_reduce_async(first.data(), first.data(), kCount, DataType::float32, {.stream = late});
    const Work two = comm.all_reduce_async(second.data(), second.data(), kCount, DataType::float32, {.stream = early});
    const Work three = comm.all_reduce_async(on_host);
    if (comm.rank() == 1) {
      const std::vector<std::string> waiting = comm.in_flight();  // without those that have ended
      ASSERT_FALSE(waiting.empty());
      EXPECT_TRUE(waiting[0].ends_with("#2 waits for the work before it on its stream")) << waiting[0];
      EXPECT_FALSE(one.done());
      fake::release(late.handle());
    }
    for (const Work& work : {three, two, one}) work.wait();
    EXPECT_EQ(values_in(first, early), std::vector<float>(kCount, 3.0F));
    EXPECT_EQ(values_in(second, late), std::vector<float>(kCount, 15.0F));
    EXPECT_EQ(on_host, std::vector<float>(kCount, 3.0F));
  });
}

TEST_P(StagedMessages, many_calls_in_flight_have_memory_of_their_own) {
  constexpr std::size_t kCount = 3000;
  constexpr int kCalls = 40;
  expect_success(2, [](Communicator& comm) {
    const ProgramStream stream;
    for (int round = 0; round < 3; ++round) {
      std::vector<std::unique_ptr<DeviceBuffer>> buffers;
      std::vector<Work> works;
      for (int i = 0; i < kCalls; ++i) {
        buffers.push_back(std::make_unique<DeviceBuffer>(kCount * sizeof(float)));
        write_values(*buffers.back(), stream, static_cast<float>(i));
        works.push_back(comm.all_reduce_async(buffers.back()->data(), buffers.back()->data(), kCount, DataType::float32,
                                              {.stream = stream}));
      }
      for (int i = 0; i < kCalls; ++i) {
        works[static_cast<std::size_t>(i)].wait();
        EXPECT_EQ(values_in(*buffers[static_cast<std::size_t>(i)], stream),
                  std::vector<float>(kCount, static_cast<float>(2 * i)));
      }
    }
  });
}

// One rank, so that its two streams are the only ones of the library.
TEST_P(StagedMessages, host_memory_is_not_used_again_before_the_copy_from_it_has_ended) {
  expect_success(1, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer first(4000), second(4000);
    const auto post = [&](const DeviceBuffer& memory) {
      return comm.all_reduce_async(memory.data(), memory.data(), 1000, DataType::float32, {.stream = stream});
    };
    post(first).wait();
    CUstream_st* const outward = fake::library_streams().at(1);
    write_values(first, stream, 1.0F);
    write_values(second, stream, 2.0F);
    fake::hold(outward);
    const Work one = post(first);
    await_state(comm, 0, "waits for the copy of its output");
    const Work two = post(second);
    await_state(comm, 1, "waits for the copy of its output");
    fake::release(outward);
    one.wait();
    two.wait();
    EXPECT_EQ(values_in(first, stream), std::vector<float>(1000, 1.0F));
    EXPECT_EQ(values_in(second, stream), std::vector<float>(1000, 2.0F));
  });
}

TEST_P(StagedMessages, pinned_memory_is_used_where_it_lies_once_the_stream_has_come_to_it) {
  expect_success(2, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer pinned(4000, fake::Kind::pinned);
    write_values(pinned, stream, 4.0F);
    comm.all_reduce(pinned.data(), pinned.data(), 1000, DataType::float32, {.stream = stream});
    float last = 0;
    std::memcpy(&last, pinned.data() + 3996, sizeof(last));
    EXPECT_EQ(last, 8.0F);
  });
}

TEST_P(StagedMessages, a_barrier_ignores_its_stream_and_the_default_stream_is_one_too) {
  expect_success(2, [](Communicator& comm) {
    comm.barrier(comm.rank() == 0 ? CallOptions{.stream = DeviceStream{}} : CallOptions{});
    const ProgramStream stream;
    const DeviceBuffer memory(400);
    const std::vector<float> ones(100, 1.0F);
    fake::write(nullptr, memory.data(), ones.data(), 400);
    comm.all_reduce(memory.data(), memory.data(), 100, DataType::float32, {.stream = DeviceStream{}});
    EXPECT_EQ(values_in(memory, stream), std::vector<float>(100, 2.0F));
  });
}

}  // namespace
}  // namespace qccl::testing
