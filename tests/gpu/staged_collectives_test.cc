// Collectives on device memory give the bits of host memory, and touch nothing else.
#include <cmath>
#include <cstring>

#include "codec/registry.h"
#include "gpu/both_memories.h"
#include "gpu/device_job.h"
#include "plan/plan.h"

namespace qccl::testing {
namespace {

class StagedCollectives : public DeviceCalls {};
INSTANTIATE_TEST_SUITE_P(All, StagedCollectives, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

constexpr int kWorld = 3;
constexpr Collective kCollectives[] = {
    Collective::all_reduce, Collective::broadcast, Collective::all_gather, Collective::reduce_scatter,
    Collective::reduce,     Collective::gather,    Collective::scatter,    Collective::all_to_all,
};

TEST_P(StagedCollectives, every_collective_gives_the_bits_of_host_memory) {
  expect_success(kWorld, [](Communicator& comm) {
    BothMemories both(comm);
    for (const Collective collective : kCollectives) {
      for (const std::size_t count : {0u, 1u, 100u, 20'003u}) {
        for (const bool in_place : {false, true}) {
          if (in_place && collective == Collective::all_to_all) continue;
          const CallOptions options{.op = ReduceOp::max, .root = static_cast<int>(count % kWorld)};
          both.expect_equal({collective, DataType::int32, count, options, in_place});
        }
      }
    }
  });
}

TEST_P(StagedCollectives, every_algorithm_gives_the_bits_of_host_memory) {
  expect_success(kWorld, [](Communicator& comm) {
    BothMemories both(comm);
    for (const Collective collective : kCollectives) {
      for (const Algorithm algorithm : plan::algorithms_of(collective)) {
        const CallOptions options{.root = 1, .algorithm = algorithm};
        both.expect_equal({collective, DataType::bfloat16, 10'001, options, collective == Collective::all_reduce});
      }
    }
  });
}

TEST_P(StagedCollectives, every_type_and_operation_gives_the_bits_of_host_memory) {
  expect_success(2, [](Communicator& comm) {
    BothMemories both(comm);
    for (const DataType type : kTypes) {
      for (const ReduceOp op : kOps) {
        if (supports(type, op)) {
          both.expect_equal({Collective::all_reduce, type, 501, {.op = op, .premul_factor = 0.5 + comm.rank()}});
        }
      }
    }
  });
}

TEST_P(StagedCollectives, every_codec_gives_the_bits_of_host_memory) {
  expect_success(kWorld, [](Communicator& comm) {
    BothMemories both(comm);
    for (const CodecEntry* const codec : codec_list()) {
      if (codec->make == nullptr) continue;
      for (const Compression& compression : examples_of(*codec)) {
        for (const Collective collective :
             {Collective::all_reduce, Collective::reduce_scatter, Collective::broadcast}) {
          const CallOptions options{.root = 2, .compression = compression, .algorithm = Algorithm::automatic};
          both.expect_equal({collective, DataType::float32, 20'003, options, true});
        }
      }
    }
  });
}

TEST_P(StagedCollectives, error_feedback_gives_the_bits_and_residuals_of_host_memory) {
  constexpr std::size_t kCount = 20'003;
  expect_success(kWorld, [](Communicator& comm) {
    Communicator second = comm.dup();
    const ProgramStream stream;
    const DeviceBuffer memory(kCount * sizeof(float));
    ErrorFeedback on_host(kCount), on_device(kCount);
    for (std::uint64_t step = 0; step < 3; ++step) {
      ByteVector expected =
          make_inputs(Pattern::normal, DataType::float32, kCount, kWorld, step)[static_cast<std::size_t>(comm.rank())];
      memory.write(stream, expected);
      CallOptions options{.compression = minmax({.bits = 2}), .error_feedback = on_host};
      comm.all_reduce(expected.data(), expected.data(), kCount, DataType::float32, options);
      options.error_feedback = on_device;
      options.stream = stream;
      second.all_reduce(memory.data(), memory.data(), kCount, DataType::float32, options);
      EXPECT_TRUE(memory.read(stream) == expected);
    }
    EXPECT_TRUE(std::equal(on_host.residual().begin(), on_host.residual().end(), on_device.residual().begin()));
  });
}

TEST_P(StagedCollectives, the_1_bit_all_reduce_gives_the_bits_of_host_memory) {
  constexpr std::size_t kCount = 20'003;
  expect_success(kWorld, [](Communicator& comm) {
    const auto sizes = onebit_sizes(kCount, kWorld);
    std::vector<float> values(kCount), worker(sizes.worker_error), server(sizes.server_error);
    for (std::size_t i = 0; i < kCount; ++i)
      values[i] = std::sin(static_cast<float>(i) + static_cast<float>(comm.rank()));
    const ProgramStream stream;
    const DeviceBuffer data(4 * kCount), worker_error(4 * worker.size()), server_error(4 * server.size());
    worker_error.write(stream, ByteVector(worker_error.bytes()));
    server_error.write(stream, ByteVector(server_error.bytes()));
    const auto floats = [](const DeviceBuffer& memory) {
      return std::span(reinterpret_cast<float*>(memory.data()), memory.bytes() / sizeof(float));
    };
    for (int step = 0; step < 2; ++step) {
      fake::write(stream.handle(), data.data(), values.data(), data.bytes());
      comm.compressed_allreduce(values, worker, server);
      comm.compressed_allreduce(floats(data), floats(worker_error), floats(server_error), {.stream = stream});
      const auto expect = [&](const DeviceBuffer& memory, const std::vector<float>& host) {
        EXPECT_EQ(std::memcmp(memory.read(stream).data(), host.data(), memory.bytes()), 0);
      };
      expect(data, values);
      expect(worker_error, worker);
      expect(server_error, server);
    }
  });
}

}  // namespace
}  // namespace qccl::testing
