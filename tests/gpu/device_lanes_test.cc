// Collectives whose lanes run on devices give the bits of host memory, whoever computes, and fail with their reason
// without a job under way.
#include <algorithm>
#include <array>
#include <barrier>
#include <cstdlib>
#include <latch>
#include <span>

#include "codec/registry.h"
#include "gpu/device_lanes.h"
#include "plan/plan.h"
#include "support/error_of.h"

namespace qccl::testing {
namespace {

using device::Code;

INSTANTIATE_TEST_SUITE_P(All, DeviceLanes, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

constexpr std::size_t kCount = 100'003;  // ragged; several slices of each of three chunks

constexpr std::array kCollectives = {
    Collective::all_reduce, Collective::broadcast,  Collective::all_gather, Collective::reduce_scatter,
    Collective::reduce,     Collective::all_to_all, Collective::gather,     Collective::scatter,
};
constexpr std::span kCompressed = std::span(kCollectives).first(6);

TEST_P(DeviceLanes, every_collective_and_algorithm_gives_the_bits_of_host_memory) {
  expect_success(3, [](Communicator& comm) {
    BothMemories both(comm);
    for (const Collective collective : kCollectives) {
      for (const Algorithm algorithm : plan::algorithms_of(collective)) {
        for (const bool in_place : {false, true}) {
          if (in_place && collective == Collective::all_to_all) continue;
          both.expect_equal({collective, DataType::float32, kCount, {.root = 1, .algorithm = algorithm}, in_place});
        }
      }
    }
  });
  EXPECT_TRUE(has_launched());
  EXPECT_EQ(has_used_frames(), is_shm());
}

TEST_P(DeviceLanes, every_type_and_operation_gives_the_bits_of_host_memory) {
  expect_success(2, [](Communicator& comm) {
    BothMemories both(comm);
    for (const DataType type : kTypes) {
      for (const ReduceOp op : kOps) {
        if (!supports(type, op)) continue;
        const CallOptions options{.op = op, .premul_factor = 0.5 + comm.rank(), .algorithm = Algorithm::sra};
        both.expect_equal({Collective::all_reduce, type, 80'001, options, true});
      }
    }
  });
  EXPECT_TRUE(has_launched());
}

TEST_P(DeviceLanes, every_codec_gives_the_bits_of_host_memory) {
  expect_success(3, [](Communicator& comm) {
    BothMemories both(comm);
    for (const CodecEntry* const codec : codec_list()) {
      if (codec->make == nullptr) continue;
      for (const Compression& compression : examples_of(*codec)) {
        both.expect_equal({Collective::all_reduce,
                           DataType::float32,
                           80'001,
                           {.compression = compression, .algorithm = Algorithm::sra},
                           true});
      }
    }
  });
  EXPECT_TRUE(has_launched());
}

TEST_P(DeviceLanes, a_call_and_its_log_say_who_computes) {
  expect_success(2, [](Communicator& comm) {
    comm.log().configure({.enabled = true});
    const ProgramStream stream;
    const auto say = [&](std::size_t count, CallOptions options) {
      const DeviceBuffer memory(count * sizeof(float));
      memory.write(stream, ByteVector(memory.bytes()));
      options.stream = stream;
      fake::hold(stream.handle());
      const Work work = comm.all_reduce_async(memory.data(), memory.data(), count, DataType::float32, options);
      const std::string call = comm.in_flight().at(0);
      fake::release(stream.handle());
      work.wait();
      const std::string device = comm.log().read().records.back().device;
      EXPECT_NE(call.find(", device memory, slice_bytes=32768, " + device + ") #"), std::string::npos) << call;
      return device;
    };
    EXPECT_EQ(say(kCount, {}), "lanes");
    EXPECT_EQ(say(100, {}), "staged: it is short");
    EXPECT_EQ(say(kCount, {.keep_input = true}), "staged: it keeps its input");
    EXPECT_EQ(say(kCount, {.compression = grid()}), "lanes");
    EXPECT_EQ(say(kCount, {.compression = grid({.bound = 0.01})}), "lanes");
    const std::string lacking = "staged: kernels lack its algorithm or codec";
    EXPECT_EQ(say(kCount, {.compression = grid({.entropy = true})}), lacking);
    EXPECT_EQ(say(kCount, {.algorithm = Algorithm::recursive_doubling}), lacking);
    float on_host = 1;
    comm.all_reduce(&on_host, &on_host, 1, DataType::float32);
    EXPECT_EQ(comm.log().read().records.back().device, "");
  });
}

// Frames are counted by their headers: half as long a slice is twice as many.
TEST_P(DeviceLanes, slices_are_long_unless_their_size_is_given) {
  const auto header_bytes = [this] {
    std::uint64_t sent = 0;
    expect_success(2, [&](Communicator& comm) {
      const ProgramStream stream;
      const DeviceBuffer memory(20 * kCount * sizeof(float));
      memory.write(stream, ByteVector(memory.bytes()));
      const std::uint64_t before = comm.traffic().header_bytes_sent;
      const CallOptions options{.algorithm = Algorithm::sra, .stream = stream};
      comm.all_reduce(memory.data(), memory.data(), 20 * kCount, DataType::float32, options);
      if (comm.rank() == 0) sent = comm.traffic().header_bytes_sent - before;
    });
    return sent;
  };
  unsetenv("QCCL_SLICE_BYTES");
  const std::uint64_t not_given = header_bytes();
  setenv("QCCL_SLICE_BYTES", "131072", 1);
  const std::uint64_t given = header_bytes();
  EXPECT_GT(2 * given, 3 * not_given);
}

TEST_P(DeviceLanes, every_compressed_collective_gives_the_bits_of_host_memory) {
  expect_success(3, [](Communicator& comm) {
    BothMemories both(comm);
    for (const Collective collective : kCompressed) {
      for (const Algorithm algorithm : plan::algorithms_of(collective)) {
        for (const DataType type : {DataType::float32, DataType::bfloat16}) {
          const CallOptions options{
              .root = 2, .compression = minmax({.bits = 4, .rounding = Rounding::stochastic}), .algorithm = algorithm};
          both.expect_equal({collective, type, kCount, options, collective != Collective::all_to_all});
        }
      }
    }
  });
  EXPECT_TRUE(has_launched());
  EXPECT_EQ(has_used_frames(), is_shm());
}

// The values say how long a payload is, so what arrives and what is sent is as long as on the host.
TEST_P(DeviceLanes, payloads_of_any_length_give_the_bits_and_bytes_of_host_memory) {
  expect_success(3, [](Communicator& comm) {
    Communicator on_device = comm.dup();
    const ProgramStream stream;
    const DeviceBuffer memory(kCount * sizeof(float));
    for (const Compression& compression :
         {grid({.bound = 1e-3}), grid({.bound = 1e-5}), grid({.bucket = 1024, .rounding = Rounding::stochastic})}) {
      for (const Collective collective : {Collective::all_reduce, Collective::broadcast, Collective::reduce}) {
        for (const Algorithm algorithm : plan::algorithms_of(collective)) {
          SCOPED_TRACE(compression.to_string() + " " + std::string(to_string(algorithm)));
          ByteVector expected = make_inputs(Pattern::normal, DataType::float32, kCount, comm.size(),
                                            7)[static_cast<std::size_t>(comm.rank())];
          memory.write(stream, expected);
          CallOptions options{.root = 1, .compression = compression, .algorithm = algorithm};
          const std::uint64_t begin = comm.traffic().payload_bytes_sent;
          comm.run({collective, expected.data(), expected.data(), kCount, DataType::float32, options});
          const std::uint64_t middle = comm.traffic().payload_bytes_sent;
          options.stream = stream;
          on_device.run({collective, memory.data(), memory.data(), kCount, DataType::float32, options});
          EXPECT_EQ(on_device.traffic().payload_bytes_sent - middle, middle - begin);
          EXPECT_TRUE(memory.read(stream) == expected);
        }
      }
    }
  });
  EXPECT_TRUE(has_launched());
  EXPECT_EQ(has_used_frames(), is_shm());
}

// Payloads wait for a root that adds more slowly than others send; received slices wait for jobs.
TEST_P(DeviceLanes, many_more_slices_than_places_give_the_bits_of_host_memory) {
  setenv("QCCL_SLICE_BYTES", "8192", 1);
  expect_success(3, [](Communicator& comm) {
    BothMemories both(comm);
    for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::broadcast}) {
      for (const Compression& compression : {none(), minmax({.bits = 4}), grid({.bound = 0.01})}) {
        for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::sra, Algorithm::ring}) {
          if (!plan::has_algorithm(collective, algorithm)) continue;
          const CallOptions options{.compression = compression, .algorithm = algorithm};
          both.expect_equal({collective, DataType::float32, 3 * kCount, options});
        }
      }
    }
  });
  EXPECT_TRUE(has_launched());
  EXPECT_EQ(has_used_frames(), is_shm());
}

// More parts than a job has sources; over TCP, on two hosts.
TEST_P(DeviceLanes, sums_of_many_parts_give_the_bits_of_host_memory) {
  if (GetParam() == TransportChoice::tcp) setenv("QCCL_HOSTS", "2x6", 1);
  expect_success(12, [](Communicator& comm) {
    BothMemories both(comm);
    for (const Algorithm algorithm : {Algorithm::sra, Algorithm::hierarchical}) {
      for (const DataType type : {DataType::int32, DataType::bfloat16, DataType::float64}) {
        both.expect_equal({Collective::all_reduce, type, 40'009, {.algorithm = algorithm}, true});
      }
      for (const Compression& compression : {minmax({.bits = 3}), grid()}) {
        const CallOptions options{.compression = compression, .algorithm = algorithm};
        both.expect_equal({Collective::all_reduce, DataType::float32, 40'009, options, true});
        both.expect_equal({Collective::reduce, DataType::float16, 40'009, options});
      }
    }
  });
  unsetenv("QCCL_HOSTS");
  EXPECT_TRUE(has_launched());
}

// The wire does not say who computed.
TEST_P(DeviceLanes, ranks_with_and_without_kernels_make_a_call_together) {
  fake::fail("cuModuleLoadData", Code::out_of_memory);
  expect_success(3, [](Communicator& comm) {
    BothMemories both(comm);
    for (const Compression& compression : {none(), minmax({.bits = 4}), sign(), grid()}) {
      const CallOptions options{.compression = compression, .algorithm = Algorithm::sra};
      both.expect_equal({Collective::all_reduce, DataType::float32, kCount, options, true});
    }
  });
  EXPECT_TRUE(has_launched());
}

// Work of `comm`'s rank on memory of a device, in place.
Work post(Communicator& comm, const DeviceBuffer& memory, const ProgramStream& stream) {
  return comm.all_reduce_async(memory.data(), memory.data(), memory.bytes() / sizeof(float), DataType::float32,
                               {.compression = minmax({.bits = 8}), .stream = stream});
}

TEST_P(DeviceLanes, several_calls_run_at_once_and_in_any_order_of_their_inputs) {
  expect_success(2, [](Communicator& comm) {
    constexpr std::size_t kCalls = 6;
    std::array<ProgramStream, kCalls> streams;
    std::vector<std::unique_ptr<DeviceBuffer>> memory;
    std::vector<Work> works;
    for (std::size_t i = 0; i < kCalls; ++i) {
      const std::vector<float> ones(kCount, 1.0f + static_cast<float>(i));
      memory.push_back(std::make_unique<DeviceBuffer>(kCount * sizeof(float)));
      fake::write(streams[i].handle(), memory[i]->data(), ones.data(), memory[i]->bytes());
      if (i % 2 == static_cast<std::size_t>(comm.rank())) fake::hold(streams[i].handle());
      works.push_back(post(comm, *memory[i], streams[i]));
    }
    for (std::size_t i = kCalls; i-- > 0;) fake::release(streams[i].handle());
    for (std::size_t i = 0; i < kCalls; ++i) {
      works[i].wait();
      const ByteVector sum = memory[i]->read(streams[i]);
      float first = 0;
      std::memcpy(&first, sum.data(), sizeof first);
      EXPECT_EQ(first, 2 * (1.0f + static_cast<float>(i)));
    }
  });
}

TEST_P(DeviceLanes, a_failed_call_does_not_end_before_its_jobs) {
  run_threads(1, options(), [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kCount * sizeof(float)), output(kCount * sizeof(float));
    memory.clear(stream);
    post(comm, memory, stream).wait();
    CUstream_st* const computing = fake::library_streams().at(2);
    fake::hold(computing);
    const std::size_t before = fake::launches();
    const Work work = comm.all_reduce_async(memory.data(), output.data(), kCount, DataType::float32,
                                            {.algorithm = Algorithm::sra, .stream = stream});
    while (fake::launches() == before) EXPECT_EQ(comm.in_flight().size(), 1u);
    comm.abort("enough");
    EXPECT_EQ(comm.in_flight().size(), 1u);
    EXPECT_FALSE(work.done());
    fake::release(computing);
    EXPECT_EQ(error_of([&] { work.wait(); }).kind, ErrorKind::aborted);
  });
}

// The jobs that read a frame may end before it has been passed on.
TEST_P(DeviceLanes, a_frame_that_is_passed_on_late_is_given_back) {
  constexpr std::size_t kOneSlice = 40'000;
  std::barrier phase(4);
  expect_success(4, [&](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kOneSlice * sizeof(float));
    memory.clear(stream);
    const auto post_broadcast = [&] {
      return comm.broadcast_async(memory.data(), kOneSlice, DataType::float32,
                                  {.algorithm = Algorithm::binomial, .stream = stream});
    };
    post_broadcast().wait();
    for (int i = 0; i < 4; ++i) {
      phase.arrive_and_wait();
      const std::size_t before = fake::launches();
      Work work;
      if (comm.rank() < 3) work = post_broadcast();
      while (comm.rank() == 2 && fake::launches() == before) static_cast<void>(comm.in_flight());
      if (comm.rank() == 2) {
        for (CUstream_st* const each : fake::library_streams()) fake::synchronize(each);
        for (int looks = 0; looks < 100; ++looks) static_cast<void>(comm.in_flight());
      }
      phase.arrive_and_wait();
      if (comm.rank() == 3) work = post_broadcast();
      work.wait();
    }
  });
  EXPECT_EQ(has_used_frames(), is_shm());
}

// Until a job has ended, what it writes is no frame of others.
TEST_P(DeviceLanes, frames_of_a_failed_call_are_not_used_again_before_its_jobs_have_ended) {
  constexpr std::size_t kSmall = 12'000;  // in a large slot, without a grant
  std::barrier phase(2);
  expect_success(2, [&](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kCount * sizeof(float));
    memory.clear(stream);
    Communicator failing = comm.dup();
    post(failing, memory, stream).wait();
    phase.arrive_and_wait();
    Work lost;
    if (comm.rank() == 0) {
      for (CUstream_st* const each : fake::library_streams()) fake::hold(each);
      const std::size_t before = fake::launches();
      lost = failing.all_reduce_async(memory.data(), memory.data(), kCount, DataType::float32,
                                      {.algorithm = Algorithm::sra, .stream = stream});
      while (fake::launches() == before) static_cast<void>(failing.in_flight());
      failing.abort("enough");
    }
    phase.arrive_and_wait();
    EXPECT_EQ(error_of([&] { failing.barrier(); }).kind, ErrorKind::aborted);

    // Some that end, so that the sender comes to the slots that it got last; then one that is on its way meanwhile.
    std::vector<float> values(kSmall, 1.0f);
    const auto add = [&] {
      return comm.all_reduce_async(values.data(), values.data(), kSmall, DataType::float32,
                                   {.algorithm = Algorithm::one_shot});
    };
    for (int i = 0; i < 3; ++i) add().wait();
    Work last;
    if (comm.rank() == 0) last = add();
    phase.arrive_and_wait();
    if (comm.rank() == 0) {
      for (CUstream_st* const each : fake::library_streams()) fake::release(each);
      EXPECT_EQ(error_of([&] { lost.wait(); }).kind, ErrorKind::aborted);
    }
    phase.arrive_and_wait();
    if (comm.rank() == 1) last = add();
    last.wait();
    EXPECT_EQ(values, std::vector<float>(kSmall, 16.0f));
  });
  EXPECT_EQ(has_used_frames(), is_shm());
}

// One rank of the two; the other writes and reads them.
TEST_P(DeviceLanes, frames_that_can_not_be_registered_are_copied_by_the_host) {
  fake::fail("cuMemHostRegister", Code::out_of_memory);
  expect_success(2, [&](Communicator& comm) {
    BothMemories both(comm);
    for (const Compression& compression : {none(), minmax({.bits = 4})}) {
      const CallOptions options{.compression = compression, .algorithm = Algorithm::sra};
      both.expect_equal({Collective::all_reduce, DataType::float32, kCount, options, true});
    }
  });
  EXPECT_EQ(has_used_frames(), is_shm());
  fake::fail("cuMemHostRegister", Code::success);  // takes back one that was not due
}

TEST_P(DeviceLanes, frames_beyond_the_pinned_limit_are_copied_by_the_host) {
  setenv("QCCL_PINNED_LIMIT", "9000000", 1);  // less than the frames of a pair
  expect_success(2, [](Communicator& comm) {
    BothMemories both(comm);
    both.expect_equal({Collective::all_reduce, DataType::float32, 40'001, {.algorithm = Algorithm::sra}, true});
  });
  unsetenv("QCCL_PINNED_LIMIT");
  EXPECT_TRUE(has_launched());
  EXPECT_FALSE(has_used_frames());
}

TEST_P(DeviceLanes, a_device_that_fails_ends_the_call_on_all_ranks_with_its_words) {
  for (const char* const function : {"cuLaunchKernel", "cuEventRecord", "cuEventQuery"}) {
    std::latch started(2);  // until then a failure may end the other rank's start
    expect_success(2, [&](Communicator& comm) {
      const ProgramStream stream;
      const DeviceBuffer memory(kCount * sizeof(float));
      memory.clear(stream);
      post(comm, memory, stream).wait();
      started.arrive_and_wait();
      if (comm.rank() == 0) fake::fail(function, static_cast<Code>(700), function[2] == 'L' ? 0 : 2);
      const ErrorInfo failed = error_of([&] {
        for (int i = 0; i < 3; ++i) post(comm, memory, stream).wait();
      });
      EXPECT_EQ(failed.kind, ErrorKind::aborted);
      EXPECT_NE(failed.message.find(std::string(function) + ": error 700"), std::string::npos) << failed.message;
    });
  }
}

// Rank 0's device, while a job of the call is under way.
TEST_P(DeviceLanes, a_device_with_a_fault_ends_the_call_on_all_ranks_with_its_words) {
  fake::repair(0);  // where a device can have no fault and go on, this ends the test before a rank waits
  std::latch opened(1), ended(2);
  expect_success(2, [&](Communicator& comm) {
    const int device = comm.rank();
    const ProgramStream stream(device);
    const DeviceBuffer memory(kCount * sizeof(float), fake::Kind::device, device);
    memory.clear(stream);
    if (comm.rank() == 1) opened.wait();
    if (comm.rank() == 0) {
      static_cast<void>(comm.stream_order(0));  // opens the device
      fake::hold(fake::library_streams().at(2));
      opened.count_down();
    }
    const std::size_t before = fake::launches();
    const Work work = comm.all_reduce_async(memory.data(), memory.data(), kCount, DataType::float32,
                                            {.algorithm = Algorithm::sra, .stream = stream});
    if (comm.rank() == 0) {
      while (fake::launches() == before) static_cast<void>(comm.in_flight());
      fake::fault(0, static_cast<Code>(700));
    }
    const ErrorInfo failed = error_of([&] { work.wait(); });
    EXPECT_EQ(failed.kind, ErrorKind::aborted);
    EXPECT_NE(failed.message.find("device 0: "), std::string::npos) << failed.message;
    EXPECT_NE(failed.message.find(": error 700"), std::string::npos) << failed.message;
    ended.arrive_and_wait();
    if (comm.rank() == 0) {
      fake::release(fake::library_streams().at(2));
      fake::repair(0);
    }
  });
}

TEST_P(DeviceLanes, without_room_for_pinned_memory_the_call_is_staged) {
  setenv("QCCL_PINNED_LIMIT", "100000", 1);
  expect_success(2, [](Communicator& comm) {
    BothMemories both(comm);
    both.expect_equal({Collective::all_reduce, DataType::float32, kCount, {.algorithm = Algorithm::sra}, true});
  });
  unsetenv("QCCL_PINNED_LIMIT");
  EXPECT_FALSE(has_launched());
}

TEST_P(DeviceLanes, without_kernels_the_call_is_staged) {
  setenv("QCCL_DEVICE_KERNELS", "off", 1);
  expect_success(2, [](Communicator& comm) {
    BothMemories both(comm);
    both.expect_equal({Collective::all_reduce, DataType::float32, kCount, {.algorithm = Algorithm::sra}, true});
  });
  EXPECT_FALSE(has_launched());
}

TEST_P(DeviceLanes, warm_calls_take_nothing_new_from_the_driver) {
  expect_success(2, [](Communicator& comm) {
    const ProgramStream stream;
    const DeviceBuffer memory(kCount * sizeof(float));
    memory.clear(stream);
    for (int i = 0; i < 3; ++i) post(comm, memory, stream).wait();
    comm.barrier();
    const std::size_t before = fake::live_objects();
    comm.barrier();
    for (int i = 0; i < 5; ++i) post(comm, memory, stream).wait();
    comm.barrier();
    EXPECT_EQ(fake::live_objects(), before);
    comm.barrier();
  });
}

}  // namespace
}  // namespace qccl::testing
