// Collectives on device memory give the bits of host memory, and touch nothing else.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "codec/registry.h"
#include "engine/call/executable_plan.h"
#include "gpu/device_job.h"
#include "plan/plan.h"
#include "support/test_data.h"

namespace qccl::testing {
namespace {

class StagedCollectives : public DeviceCalls {};
INSTANTIATE_TEST_SUITE_P(All, StagedCollectives, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

constexpr int kWorld = 3;
constexpr std::size_t kGap = 64;

struct Case {
  Collective collective;
  DataType type;
  std::size_t count;
  CallOptions options{};
  bool in_place = false;

  std::string name() const {
    return fmt::format("{} of {} {}, {}, {}{}", to_string(collective), count, to_string(type),
                       to_string(options.algorithm), options.compression.value_or(none()).to_string(),
                       in_place ? ", in place" : "");
  }
};

// Input and output of one rank in one piece of memory, with gaps of poison.
struct Layout {
  Layout(const Case& made, int rank, int world) {
    const engine::ResolvedCall call{
        .collective = made.collective, .count = made.count, .type = made.type, .root = made.options.root};
    const std::size_t element = element_bytes(made.type);
    input_bytes = engine::input_elements(call, world, rank) * element;
    output_bytes = engine::output_elements(call, world, rank) * element;
    const bool shares = made.in_place || made.collective == Collective::broadcast;
    const std::size_t part = plan::has_pieces(made.collective) ? engine::piece_begin(call, rank) * element : 0;
    input_at = kGap + (shares && input_bytes < output_bytes ? part : 0);
    output_at = kGap + (shares && input_bytes > output_bytes && output_bytes > 0 ? part : 0);
    if (!shares) output_at = input_at + input_bytes + kGap;
    bytes = std::max(input_at + input_bytes, output_at + output_bytes) + kGap;
  }

  std::size_t input_bytes, output_bytes, input_at, output_at, bytes;
};

void make(Communicator& comm, const Case& made, std::byte* memory, const Layout& layout, const CallOptions& options) {
  const std::byte* const input = memory + layout.input_at;
  std::byte* const output = memory + layout.output_at;
  switch (made.collective) {
    case Collective::all_reduce: return comm.all_reduce(input, output, made.count, made.type, options);
    case Collective::broadcast: return comm.broadcast(output, made.count, made.type, options);
    case Collective::all_gather: return comm.all_gather(input, output, made.count, made.type, options);
    case Collective::reduce_scatter: return comm.reduce_scatter(input, output, made.count, made.type, options);
    case Collective::reduce: return comm.reduce(input, output, made.count, made.type, options);
    case Collective::gather: return comm.gather(input, output, made.count, made.type, options);
    case Collective::scatter: return comm.scatter(input, output, made.count, made.type, options);
    case Collective::all_to_all: return comm.all_to_all(input, output, made.count, made.type, options);
    case Collective::barrier: return comm.barrier(options);
  }
}

// Makes each case in host memory and, in a group of its own, in device memory.
class BothMemories {
 public:
  explicit BothMemories(Communicator& comm) : host_(comm), device_(comm.dup()) {}

  void expect_equal(const Case& made) {
    SCOPED_TRACE(fmt::format("rank {}: {}", host_.rank(), made.name()));
    const Layout layout(made, host_.rank(), host_.size());
    ByteVector input = make_inputs(Pattern::normal, made.type, layout.input_bytes / element_bytes(made.type),
                                   host_.size(), ++cases_)[static_cast<std::size_t>(host_.rank())];
    ByteVector expected(layout.bytes, fake::kPoison);
    std::copy(input.begin(), input.end(), expected.begin() + static_cast<std::ptrdiff_t>(layout.input_at));
    make(host_, made, expected.data(), layout, made.options);

    const DeviceBuffer memory(layout.bytes);
    memory.write(stream_, input, layout.input_at);
    CallOptions options = made.options;
    options.stream = stream_;
    make(device_, made, memory.data(), layout, options);
    const ProgramStream other;
    EXPECT_TRUE(memory.read(other) == expected);
  }

 private:
  Communicator& host_;
  Communicator device_;
  const ProgramStream stream_;
  std::uint64_t cases_ = 0;
};

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
