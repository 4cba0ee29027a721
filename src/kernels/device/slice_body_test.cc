// The bodies of the device's kernels on the host, byte for byte against the host's kernels.
#include "kernels/device/slice_body.h"

#include <gtest/gtest.h>

#include "kernels/device/job_case.h"

namespace qccl::kernels::device {
namespace {

constexpr DataType kTypes[] = {DataType::float32, DataType::float64, DataType::float16, DataType::bfloat16,
                               DataType::int8,    DataType::uint8,   DataType::int16,   DataType::uint16,
                               DataType::int32,   DataType::uint32,  DataType::int64,   DataType::uint64,
                               DataType::boolean};
constexpr ReduceOp kOps[] = {ReduceOp::sum,    ReduceOp::avg,     ReduceOp::min,
                             ReduceOp::max,    ReduceOp::prod,    ReduceOp::bit_and,
                             ReduceOp::bit_or, ReduceOp::bit_xor, ReduceOp::premul_sum};
constexpr std::uint32_t kCounts[] = {0, 1, 7, 8, 9, 255, 256, 257, 1024, 1031, 3000};

ValueFamily family_at(std::size_t index) {
  const auto families = families_with_nonfinite();
  return families[index % families.size()];
}

// ---- without a codec

class EveryType : public ::testing::TestWithParam<DataType> {};

TEST_P(EveryType, sums_of_every_operation_equal_the_hosts) {
  std::uint32_t seed = 0;
  for (const ReduceOp op : kOps) {
    if (!supports(GetParam(), op)) continue;
    for (const std::uint32_t count : kCounts) {
      ++seed;
      JobCase what{.family = family_at(seed), .seed = seed, .shift = seed % 9, .groups = 1 + seed % 4};
      what.job.type = GetParam();
      what.job.op = op;
      what.job.count = count;
      what.job.source_count = static_cast<std::uint8_t>(1 + seed % kMostSources);
      what.job.payload_count = seed % 3;
      what.job.finishes = seed % 5 != 0;
      what.job.divisor = op == ReduceOp::avg ? 3 : 0;
      what.job.factor = 0.3;
      what.job.sources[0].is_scaled = op == ReduceOp::premul_sum;
      for (std::size_t i = 1; i < kMostSources; i += 2) what.job.sources[i].kind = SourceKind::payload;
      expect_as_oracle(what);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EveryType, a_copy_keeps_every_bit) {
  JobCase what{.family = family_at(19)};
  what.job.type = GetParam();
  what.job.count = 1031;
  what.job.source_count = 1;
  what.job.payload_count = 2;
  what.job.moves = true;
  for (const std::size_t shift : {0, 3}) {
    what.shift = shift;
    const JobMemory memory(what);
    ASSERT_EQ(entry(memory.job()), Entry::own_type);
    launch_jobs(Entry::own_type, &memory.job(), 1, 3);
    const Written written = memory.written();
    const auto* const source = static_cast<const std::byte*>(memory.job().sources[0].data);
    const ByteVector expected(source, source + written.output.size());
    EXPECT_EQ(written.output, expected);
    EXPECT_EQ(written.payload, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EveryType, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(Halves, conversions_without_branches_equal_those_of_half_h) {
  for (const DataType type : {DataType::float16, DataType::bfloat16}) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(widened(type, half)),
                std::bit_cast<std::uint32_t>(reference::widened(type, half)))
          << bits;
      for (const std::uint32_t lower :
           {0u, 1u, 0xFFFu, 0x1000u, 0x1001u, 0x3000u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
        const auto value = std::bit_cast<float>(bits << 16 | lower);
        ASSERT_EQ(narrowed(type, value), reference::narrowed(type, value)) << (bits << 16 | lower);
      }
    }
  }
}

// ---- codecs

struct FormatRange {
  std::string name;
  PayloadKind kind;
  int least_bits, most_bits;
  bool stochastic = false;
  bool norm_scale = false;
  bool relative = false;  // of grid
};

class EveryFormat : public ::testing::TestWithParam<FormatRange> {
 protected:
  static std::vector<PayloadFormat> formats(std::initializer_list<std::uint32_t> buckets) {
    std::vector<PayloadFormat> result;
    for (int bits = GetParam().least_bits; bits <= GetParam().most_bits; ++bits) {
      for (const std::uint32_t bucket : buckets) {
        result.push_back(
            {GetParam().kind, static_cast<std::uint8_t>(bits), GetParam().stochastic, GetParam().norm_scale, bucket});
        if (GetParam().kind == PayloadKind::grid) set_step(result.back());
      }
    }
    return result;
  }

  // A step for a bucket of any size: of blocks in all widths and in float32, or of whole multiples of 256 elements.
  static void set_step(PayloadFormat& format) {
    constexpr std::array kSteps = {1e-3f, 0.01f, 0x1p-118f, 0x1p112f, 2e-6f, 1.0f};
    constexpr std::array kRelative = {0.5f, 0x1p-5f, 4.0f, 0.1f};
    if (GetParam().relative) {
      format.step = kRelative[format.bucket % kRelative.size()];
      format.bucket = lesser(format.bucket / 256 + 1, 256u) * 256;
    } else {
      format.step = kSteps[format.bucket % kSteps.size()];
      format.bucket = 1;
    }
  }

  // Encodes one array into everything that a job can write.
  static JobCase encoding(const PayloadFormat& format, std::uint32_t count, std::uint32_t seed) {
    JobCase what{.wants_sum = true, .family = family_at(seed), .seed = seed, .shift = seed % 5};
    what.job.count = count;
    what.job.format = format;
    what.job.source_count = 1;
    what.job.payload_count = 2;
    what.job.outputs_sent = seed % 2 == 0;
    what.job.keeps_residual = seed % 3 != 0;
    what.job.residual_factor = seed % 2 == 0 ? 1.0f : 3.0f;
    const std::uint64_t corner = seed % 2 == 0 ? std::uint64_t{1} << 32 : std::uint64_t{1} << 34;  // of word counters
    what.job.random = {.key = seed, .first_element = corner - seed % 100, .rank = 1 + seed % 3, .world = 5};
    return what;
  }
};

TEST_P(EveryFormat, encodings_of_every_bucket_and_tail_equal_the_hosts) {
  std::uint32_t seed = 0;
  for (const PayloadFormat& format : formats({1, 7, 8, 24, 32, 100, 128, 256, 1000, 1024, 2048, 4104, 5000})) {
    for (const std::uint32_t count : {1u, 8u, 1025u, 2 * format.bucket + 1, 6000u}) {
      expect_as_oracle(encoding(format, count, ++seed));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EveryFormat, encodings_of_every_kind_of_value_equal_the_hosts) {
  const auto families = families_with_nonfinite();
  std::uint32_t seed = 1000;
  for (const PayloadFormat& format : formats({32, 256, 1024})) {
    for (const ValueFamily& family : families) {
      JobCase what = encoding(format, 2100, ++seed);
      what.family = family;
      expect_as_oracle(what);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EveryFormat, whole_slices_in_the_longest_buckets_equal_the_hosts) {
  for (const std::uint32_t bucket : {65535u, 65536u}) {
    for (const PayloadFormat& format : formats({bucket})) {
      expect_as_oracle(encoding(format, 128 * 1024, bucket));
      if (HasFatalFailure()) return;
    }
  }
}

// Buckets of every size, and slices of several of them and of several pieces.
TEST_P(EveryFormat, encodings_of_any_bucket_count_and_alignment_equal_the_hosts) {
  const auto families = families_with_nonfinite();
  Random random(11);
  for (std::uint32_t round = 0; round < 150; ++round) {
    const std::uint32_t power = std::uint32_t{1} << (random() % 17);
    const std::uint32_t bucket = lesser(power + static_cast<std::uint32_t>(random()) % power, 65536u);
    const auto every = formats({bucket});
    const auto count = static_cast<std::uint32_t>(random()) % lesser(3 * bucket + 5000, 128 * 1024u);
    JobCase what = encoding(every[random() % every.size()], count, static_cast<std::uint32_t>(random()) % 100'000);
    what.family = families[random() % families.size()];
    what.shift = random() % 16;
    what.groups = 1 + static_cast<std::uint32_t>(random()) % 9;
    expect_as_oracle(what);
    if (HasFatalFailure()) return;
  }
}

// Also behind the last element of a slice, where they are not sent on.
TEST_P(EveryFormat, any_bytes_decode_as_on_the_host) {
  std::uint32_t seed = 2000;
  for (const PayloadFormat& format : formats({1, 7, 32, 100, 1024})) {
    for (const std::uint32_t count : kCounts) {
      ++seed;
      JobCase what{.wants_sum = seed % 2 == 0, .seed = seed, .shift = seed % 7};
      what.job.count = count;
      what.job.format = format;
      what.job.source_count = static_cast<std::uint8_t>(1 + seed % 3);
      for (Source& source : what.job.sources) source.kind = SourceKind::payload;
      what.job.payload_count = seed % 2;
      what.damages_payloads = seed % 3 != 0;
      expect_as_oracle(what);
      if (HasFatalFailure()) return;
    }
  }
}

// Parts of every kind in any order, and any set of targets.
TEST_P(EveryFormat, merged_steps_equal_the_hosts_one_by_one) {
  Random random(7);
  const auto every = formats({7, 24, 100, 128, 1024});
  for (std::uint32_t round = 0; round < 150; ++round) {
    JobCase what = encoding(every[random() % every.size()], random() % 3000, round);
    SliceJob& job = what.job;
    constexpr DataType kFloats[] = {DataType::float32, DataType::float16, DataType::bfloat16};
    job.type = kFloats[random() % 3];
    job.source_count = static_cast<std::uint8_t>(1 + random() % kMostSources);
    job.payload_count = random() % 3;
    for (Source& source : job.sources) source.kind = static_cast<SourceKind>(random() % 3);
    Source& own = job.sources[random() % job.source_count];
    own.kind = SourceKind::elements;
    own.is_scaled = random() % 2 == 0;
    own.adds_residual = random() % 2 == 0;
    job.factor = -0.7;
    job.finishes = random() % 2 == 0;
    job.divisor = random() % 2 == 0 ? 6 : 0;
    what.wants_output = random() % 4 != 0;
    what.wants_sum = random() % 4 == 0;
    job.outputs_sent = random() % 2 == 0;
    job.keeps_residual = random() % 2 == 0;
    what.groups = 1 + random() % 9;
    expect_as_oracle(what);
    if (HasFatalFailure()) return;
  }
}

// ---- lists, and memory that is source and target

TEST(RunJobs, groups_share_the_pieces_of_all_jobs_of_a_list) {
  std::vector<JobCase> cases;
  for (const std::uint32_t count : {5000u, 0u, 1u, 1024u, 2049u}) {
    JobCase what{.seed = count};
    what.job.count = count;
    what.job.source_count = 2;
    what.job.payload_count = 1;
    what.job.format = {.kind = PayloadKind::minmax, .bits = 3, .bucket = 100};
    cases.push_back(what);
  }
  for (const std::uint32_t groups : {1u, 2u, 7u, 100u}) {
    std::vector<std::unique_ptr<JobMemory>> memories;
    std::vector<SliceJob> jobs;
    for (const JobCase& what : cases) jobs.push_back(memories.emplace_back(std::make_unique<JobMemory>(what))->job());
    launch_jobs(Entry::minmax, jobs.data(), static_cast<std::uint32_t>(jobs.size()), groups);
    for (const auto& memory : memories) {
      EXPECT_TRUE(memory->written() == by_reference([&] { return Oracle(memory->job()).run(); })) << groups;
    }
  }
}

// The sum is added to where it lies, and the result replaces it: also in buckets that are too long to be kept.
TEST(RunJobs, targets_may_be_sources) {
  for (const std::uint32_t bucket : {7u, 128u, 1024u, 3000u}) {
    JobCase what{.wants_output = false, .wants_sum = true, .seed = bucket};
    what.job.count = 7000;
    what.job.source_count = 2;
    what.job.sources[1].kind = SourceKind::floats;
    what.job.payload_count = 1;
    what.job.outputs_sent = true;
    what.job.format = {.kind = PayloadKind::block_int, .bits = 5, .bucket = bucket};
    const JobMemory apart(what);
    launch_jobs(Entry::block_int, &apart.job(), 1, 2);
    FloatVector sum(what.job.count);
    std::memcpy(sum.data(), apart.job().sources[1].data, sum.size() * sizeof(float));
    SliceJob in_place = apart.job();
    in_place.sources[1].data = sum.data();
    in_place.sum = sum.data();
    launch_jobs(Entry::block_int, &in_place, 1, 3);
    EXPECT_EQ(bits_of(sum), bits_of(apart.written().sum)) << bucket;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, EveryFormat,
    ::testing::Values(FormatRange{"raw", PayloadKind::raw, 0, 0}, FormatRange{"float16", PayloadKind::float16, 0, 0},
                      FormatRange{"bfloat16", PayloadKind::bfloat16, 0, 0},
                      FormatRange{"minmax", PayloadKind::minmax, 1, 8},
                      FormatRange{"minmax_stochastic", PayloadKind::minmax, 1, 8, true},
                      FormatRange{"int", PayloadKind::block_int, 2, 8},
                      FormatRange{"int_stochastic", PayloadKind::block_int, 2, 8, true},
                      FormatRange{"sign_mean", PayloadKind::sign, 1, 1},
                      FormatRange{"sign_norm", PayloadKind::sign, 1, 1, false, true},
                      FormatRange{"grid", PayloadKind::grid, 0, 0},
                      FormatRange{"grid_stochastic", PayloadKind::grid, 0, 0, true},
                      FormatRange{"grid_relative", PayloadKind::grid, 0, 0, false, false, true},
                      FormatRange{"grid_relative_stochastic", PayloadKind::grid, 0, 0, true, false, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace qccl::kernels::device
