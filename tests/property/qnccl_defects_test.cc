// QNCCL compresses all_reduce inside NCCL's kernels. For each defect of its source, a test here shows
// that QCCL does not have it: wire sizes, wrapping maxima, operations, shared scratch, scalars, and
// settings that differ between ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/reference.h"
#include "support/sim_collective.h"
#include "support/test_data.h"
#include "wire/frame.h"

namespace qccl::testing {
namespace {

// Counts the bytes on the simulated network by reading the frames themselves.
struct WireCount {
  explicit WireCount(SimWorld& world) {
    world.network().set_tap([this](int from, int, Bytes frame) {
      const auto header = wire::decode_header(frame.data());
      if (header.ok() && header.value().kind == wire::FrameKind::data) {
        payload_bytes[static_cast<std::size_t>(from)] += frame.size() - wire::kHeaderBytes;
      }
    });
    payload_bytes.resize(static_cast<std::size_t>(world.size()));
  }
  std::vector<std::uint64_t> payload_bytes;  // by sender
};

std::vector<float> as_floats(const ByteVector& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

ByteVector as_bytes(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// The bytes that a rank sends in SRA: every peer's chunk once, and its own chunk to every peer.
std::uint64_t stated_traffic(const engine::ResolvedCall& call, int rank, int world) {
  const std::uint64_t share = chunk_share(call, world);
  const auto chunk = [&](int owner) {
    const std::uint64_t begin = std::min(call.count, static_cast<std::uint64_t>(owner) * share);
    return stated_bytes(call.compression, call.type, std::min(call.count, begin + share) - begin);
  };
  std::uint64_t bytes = chunk(rank) * static_cast<std::uint64_t>(world - 1);
  for (int owner = 0; owner < world; ++owner) bytes += owner != rank ? chunk(owner) : 0;
  return bytes;
}

// QNCCL ships 3 bits as 4, and 5, 6 and 7 bits as 8.
TEST(QncclDefects, every_number_of_bits_costs_that_many_bits_on_the_wire) {
  constexpr int kWorld = 4;
  constexpr std::uint64_t kCount = 100000;
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
    SimWorld world(kWorld);
    WireCount wire(world);
    const auto codec = minmax({.bits = bits, .bucket_size = 1024});
    const auto call = make_call(Collective::all_reduce, kCount, DataType::float32, kWorld, {.compression = codec});
    const auto inputs = make_inputs(Pattern::normal, DataType::float32, kCount, kWorld, 1);
    ASSERT_EQ(run_collective(world, call, inputs).problem, "");
    for (int rank = 0; rank < kWorld; ++rank) {
      const auto sent = wire.payload_bytes[static_cast<std::size_t>(rank)];
      EXPECT_EQ(sent, stated_traffic(call, rank, kWorld)) << bits << " bits, rank " << rank;
      EXPECT_EQ(world.engine(rank).frame_sender().counters().payload_bytes, sent) << "as the library counts";
    }
    // Each rank sends 2 (N - 1) / N of the tensor: b + 64 / 1024 bits per element, chunks rounded up.
    double total = 0;
    for (const auto sent : wire.payload_bytes) total += static_cast<double>(sent);
    const double bits_an_element = total * 8 / (2 * (kWorld - 1)) / kCount;
    EXPECT_NEAR(bits_an_element, bits + 64.0 / 1024, 0.002 * bits + 0.002) << bits << " bits";
  }
}

TEST(QncclDefects, wire_size_holds_for_any_count_and_bucket_size) {
  for (const int bits : {1, 3, 5, 7, 32}) {
    for (const std::uint32_t bucket_size : {1u, 7u, 64u, 1000u, 65536u}) {
      for (const std::uint64_t count : {1, 7, 1023, 70001}) {
        SimWorld world(3);
        WireCount wire(world);
        const auto codec = minmax({.bits = bits, .bucket_size = bucket_size});
        const auto call = make_call(Collective::all_reduce, count, DataType::float32, 3, {.compression = codec});
        const auto inputs = make_inputs(Pattern::normal, DataType::float32, count, 3, count);
        ASSERT_EQ(run_collective(world, call, inputs).problem, "");
        for (int rank = 0; rank < 3; ++rank) {
          EXPECT_EQ(wire.payload_bytes[static_cast<std::size_t>(rank)], stated_traffic(call, rank, 3))
              << call.describe() << " rank " << rank;
        }
      }
    }
  }
}

// QNCCL does not clamp codes: the maximum can become D + 1, which wraps to the minimum at 8 bits and
// overflows into the adjacent code below 8 bits. All values are the bucket's extremes here, so any wrap
// or carry is an error of the whole range.
TEST(QncclDefects, the_maximum_never_wraps_nor_touches_its_neighbour) {
  Random random(99);
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
    SimWorld world(2, {.seed = static_cast<std::uint64_t>(bits)});
    const auto codec = minmax({.bits = bits, .bucket_size = 8});
    constexpr std::uint64_t kCount = 8 * 2000;
    std::vector<float> values(kCount);
    for (std::size_t bucket = 0; bucket < kCount / 8; ++bucket) {
      const auto low = static_cast<float>(std::ldexp(random.uniform(-1, 1), static_cast<int>(random.below(40)) - 20));
      const float high =
          low + static_cast<float>(std::ldexp(random.uniform(), static_cast<int>(random.below(40)) - 20));
      for (std::size_t i = 0; i < 8; ++i) values[bucket * 8 + i] = random.below(2) == 0 ? low : high;
    }
    const std::vector<ByteVector> inputs = {as_bytes(values), as_bytes(std::vector<float>(kCount, 0.0f))};
    const auto call = make_call(Collective::all_reduce, kCount, DataType::float32, 2, {.compression = codec});
    const CollectiveResult outcome = run_collective(world, call, inputs);
    ASSERT_EQ(outcome.problem, "");
    EXPECT_EQ(check_bound(call, inputs, outcome.outputs), "") << bits << " bits";
  }
}

// QNCCL's ring turns float MAX, MIN and PROD silently into SUM.
TEST(QncclDefects, max_min_and_prod_stay_themselves_where_the_group_compresses) {
  const comm::GroupDefaults defaults{.compression = minmax({.bits = 4})};
  const auto inputs = make_inputs(Pattern::normal, DataType::float32, 65536, 3, 4);
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::min, ReduceOp::prod}) {
    SimWorld world(3);
    const auto call = TestGroup{3, defaults}.resolve(Collective::all_reduce, 65536, DataType::float32, {.op = op});
    ASSERT_TRUE(call.ok());
    EXPECT_EQ(call.value().compression, none());
    const CollectiveResult outcome = run_collective(world, call.value(), inputs);
    ASSERT_EQ(outcome.problem, "");
    EXPECT_EQ(difference(DataType::float32, outcome.outputs, expected_outputs(call.value(), inputs)), "");
  }
}

TEST(QncclDefects, a_call_that_asks_for_what_can_not_be_compressed_is_refused) {
  const auto refused = [](Collective collective, DataType type, ReduceOp op) {
    const CallOptions options{.op = op, .compression = minmax({.bits = 4})};
    const auto call = resolve_call(collective, 100000, type, 3, options);
    return !call.ok() && call.error().kind == ErrorKind::unsupported;
  };
  EXPECT_TRUE(refused(Collective::all_reduce, DataType::float32, ReduceOp::max));
  EXPECT_TRUE(refused(Collective::all_reduce, DataType::float32, ReduceOp::min));
  EXPECT_TRUE(refused(Collective::reduce_scatter, DataType::float32, ReduceOp::prod));
  EXPECT_TRUE(refused(Collective::all_reduce, DataType::float64, ReduceOp::sum));
  EXPECT_TRUE(refused(Collective::all_reduce, DataType::int32, ReduceOp::sum));
  EXPECT_TRUE(refused(Collective::gather, DataType::float32, ReduceOp::sum));
  EXPECT_TRUE(refused(Collective::scatter, DataType::float32, ReduceOp::sum));
  EXPECT_FALSE(refused(Collective::all_reduce, DataType::float32, ReduceOp::avg));
}

// Grouped QNCCL collectives share one scratch buffer. Here a hundred run at once in three groups.
TEST(QncclDefects, concurrent_compressed_operations_do_not_touch_each_other) {
  constexpr int kWorld = 4;
  SimWorld world(kWorld, {.seed = 3, .slice_bytes = 16384});
  world.open_group(2, "second", {0, 1, 2, 3});
  world.open_group(3, "third", {0, 1, 2, 3});
  struct Running {
    engine::ResolvedCall call;
    std::vector<ByteVector> inputs;
    std::vector<RankBuffers> buffers;
  };
  std::vector<Running> all;
  std::vector<SimWork> works;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto codec =
        minmax({.bits = static_cast<int>(1 + i % 8), .bucket_size = 100 + 13 * static_cast<std::uint32_t>(i)});
    const std::uint64_t count = 1 + i * 97;
    Running running{make_call(Collective::all_reduce, count, DataType::float32, kWorld, {.compression = codec}),
                    make_inputs(kPatterns[i % kPatterns.size()], DataType::float32, count, kWorld, i),
                    {}};
    for (int rank = 0; rank < kWorld; ++rank) {
      running.buffers.emplace_back(running.call, rank, kWorld, running.inputs[static_cast<std::size_t>(rank)],
                                   Placement{.in_place = i % 2 == 0});
    }
    all.push_back(std::move(running));
    for (int rank = 0; rank < kWorld; ++rank) {
      const RankBuffers& own = all.back().buffers[static_cast<std::size_t>(rank)];
      works.push_back(
          world.post(rank, all.back().call, {own.input(), own.output(), std::chrono::seconds(10), 1 + i % 3}));
    }
  }
  ASSERT_TRUE(world.run(works));
  for (const auto& work : works) ASSERT_FALSE(work->failure()) << work->failure()->message;
  for (const Running& running : all) {
    std::vector<ByteVector> outputs;
    for (const RankBuffers& own : running.buffers) outputs.push_back(own.result());
    const std::vector<ByteVector> same(outputs.size(), outputs[0]);
    EXPECT_EQ(difference(DataType::float32, outputs, same), "") << running.call.describe();
    EXPECT_EQ(check_bound(running.call, running.inputs, outputs), "") << running.call.describe();
  }
}

// QNCCL's scratch holds a fixed count and is overrun beyond it. QCCL's holds one slice, for any count.
TEST(QncclDefects, scratch_does_not_limit_the_count) {
  constexpr std::uint64_t kCount = 3'000'001;
  SimWorld world(2, {.seed = 4});
  const auto call = make_call(Collective::all_reduce, kCount, DataType::float32, 2,
                              {.compression = minmax({.bits = 8, .bucket_size = 65536})});
  const auto inputs = make_inputs(Pattern::normal, DataType::float32, kCount, 2, 4);
  const CollectiveResult outcome = run_collective(world, call, inputs);
  ASSERT_EQ(outcome.problem, "");
  EXPECT_EQ(check_bound(call, inputs, outcome.outputs), "");
  EXPECT_LT(engine::kScratchBytes, kCount) << "the scratch is smaller than the tensor";
}

// QNCCL also quantizes scalars and loss reductions.
TEST(QncclDefects, scalars_and_small_tensors_are_not_quantized_by_default) {
  const comm::GroupDefaults defaults{.compression = minmax({.bits = 2})};
  for (const DataType type : {DataType::float32, DataType::float16, DataType::bfloat16}) {
    const std::uint64_t limit = 64 * 1024 / element_bytes(type);
    for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{1000}, limit - 1}) {
      const auto call = TestGroup{4, defaults}.resolve(Collective::all_reduce, count, type);
      EXPECT_EQ(call.value().compression, none()) << count << " of " << to_string(type);
    }
    const auto call = TestGroup{4, defaults}.resolve(Collective::all_reduce, limit, type);
    EXPECT_EQ(call.value().compression, minmax({.bits = 2}));
  }
  const auto scalar = TestGroup{4, defaults}.resolve(Collective::all_reduce, 1, DataType::float32);
  SimWorld world(4);
  std::vector<ByteVector> inputs(4, as_bytes({0.1f}));
  const CollectiveResult outcome = run_collective(world, scalar.value(), inputs);
  EXPECT_EQ(as_floats(outcome.outputs[3])[0], 0.1f + 0.1f + 0.1f + 0.1f);
}

TEST(QncclDefects, integers_and_float64_are_never_quantized_by_default) {
  const comm::GroupDefaults defaults{.compression = minmax({.bits = 2})};
  for (const DataType type : {DataType::float64, DataType::int32, DataType::int64, DataType::uint8}) {
    const auto call = TestGroup{4, defaults}.resolve(Collective::all_reduce, 1 << 20, type);
    EXPECT_EQ(call.value().compression, none());
  }
  for (const Collective collective : {Collective::all_gather, Collective::broadcast}) {
    const auto call = TestGroup{4, defaults}.resolve(collective, 1 << 20, DataType::float32);
    EXPECT_EQ(call.value().compression, none());
  }
}

// QNCCL reads its settings from each rank's environment: settings that differ between ranks hang or corrupt.
TEST(QncclDefects, other_compression_settings_on_one_rank_are_an_error_that_names_both) {
  constexpr std::uint64_t kCount = 30000;
  const std::vector<Compression> settings = {minmax({.bits = 4}), minmax({.bits = 8}), none(),
                                             minmax({.bits = 4, .bucket_size = 512}), cast()};
  for (std::size_t other = 1; other < settings.size(); ++other) {
    SimWorld world(3);
    const auto inputs = make_inputs(Pattern::normal, DataType::float32, kCount, 3, 1);
    std::vector<RankBuffers> buffers;
    std::vector<SimWork> works;
    std::vector<std::string> described;
    for (int rank = 0; rank < 3; ++rank) {
      const auto call = make_call(Collective::all_reduce, kCount, DataType::float32, 3,
                                  {.compression = settings[rank == 1 ? other : 0]});
      described.push_back(call.describe());
      buffers.emplace_back(call, rank, 3, inputs[static_cast<std::size_t>(rank)], Placement{});
      works.push_back(world.post(rank, call, {buffers.back().input(), buffers.back().output()}));
    }
    ASSERT_TRUE(world.run(works, std::chrono::seconds(2)));
    for (const auto& work : works) {
      ASSERT_TRUE(work->failure());
      const std::string& message = work->failure()->message;
      EXPECT_EQ(work->failure()->kind, ErrorKind::misuse) << message;
      EXPECT_EQ(work->failure()->peer, 1) << message;
      EXPECT_NE(message.find(described[0]), std::string::npos) << message;
      EXPECT_NE(message.find(described[1]), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace qccl::testing
