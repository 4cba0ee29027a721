// compressed_allreduce() against DeepSpeed's results: onebit_vectors.h.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "golden/onebit_vectors.h"
#include "support/thread_job.h"

namespace qccl::testing {
namespace {

constexpr double kTolerance = 1e-6;

std::vector<float> input_of(int rank, std::size_t count) {
  std::vector<float> input(count);
  for (std::size_t i = 0; i < count; ++i) {
    input[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 11) / 4.0f - 1.25f;
  }
  return input;
}

// The signs packed like numpy.packbits(output > 0).
std::vector<std::uint8_t> packed_signs(const std::vector<float>& output) {
  std::vector<std::uint8_t> bytes((output.size() + 7) / 8);
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output[i] > 0) bytes[i / 8] = static_cast<std::uint8_t>(bytes[i / 8] | 0x80u >> (i % 8));
  }
  return bytes;
}

// The CRC-32 of zlib.
std::uint32_t crc32(const std::vector<std::uint8_t>& bytes) {
  std::uint32_t crc = ~0u;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1u ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

void expect_output(const std::vector<float>& output, const OnebitCase& golden, const OnebitStep& step) {
  const auto signs = packed_signs(output);
  const std::string hex = fmt::format("{:02x}", fmt::join(signs, ""));
  EXPECT_EQ(hex.substr(0, step.signs.size()), step.signs);
  if (step.crc32 != 0) {
    EXPECT_EQ(crc32(signs), step.crc32);
  } else {
    EXPECT_EQ(hex.size(), step.signs.size());
  }
  const std::size_t chunk = golden.padded / static_cast<std::size_t>(golden.world);
  for (std::size_t i = 0; i < output.size(); ++i) {
    ASSERT_NEAR(std::abs(output[i]), step.scales.at(i / chunk), kTolerance) << "element " << i;
  }
}

double norm(const std::vector<float>& values) {
  double squares = 0;
  for (const float x : values) squares += double{x} * double{x};
  return std::sqrt(squares);
}

struct Errors {
  std::vector<double> worker;
  std::vector<double> server;
};

// Runs all steps on all ranks; returns the norms of the final errors.
Errors run_case(const OnebitCase& golden) {
  const auto world = static_cast<std::size_t>(golden.world);
  Errors norms{std::vector<double>(world), std::vector<double>(world)};
  const auto failures = run_threads(golden.world, {}, [&](Communicator& comm) {
    std::vector<float> worker_error(golden.padded);
    std::vector<float> server_error(golden.padded / world);
    for (const OnebitStep& step : golden.steps) {
      std::vector<float> buffer = input_of(comm.rank(), golden.count);
      comm.compressed_allreduce(buffer, worker_error, server_error);
      expect_output(buffer, golden, step);
    }
    norms.worker[static_cast<std::size_t>(comm.rank())] = norm(worker_error);
    norms.server[static_cast<std::size_t>(comm.rank())] = norm(server_error);
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  return norms;
}

TEST(GoldenOnebit, outputs_and_errors_are_deepspeeds) {
  for (const OnebitCase& golden : onebit_cases()) {
    SCOPED_TRACE(fmt::format("W={} n={} P={}", golden.world, golden.count, golden.padded));
    const Errors norms = run_case(golden);
    for (std::size_t rank = 0; rank < golden.worker_norms.size(); ++rank) {
      EXPECT_NEAR(norms.worker[rank], golden.worker_norms[rank], kTolerance) << "rank " << rank;
      EXPECT_NEAR(norms.server[rank], golden.server_norms[rank], kTolerance) << "rank " << rank;
    }
  }
}

TEST(GoldenOnebit, the_padded_sizes_are_multiples_of_8_for_each_rank) {
  for (const OnebitCase& golden : onebit_cases()) {
    const OnebitSizes sizes = onebit_sizes(golden.count, golden.world);
    EXPECT_EQ(sizes.worker_error, golden.padded);
    EXPECT_EQ(sizes.server_error, golden.padded / static_cast<std::size_t>(golden.world));
  }
  EXPECT_EQ(onebit_sizes(0, 3).worker_error, 0u);
  EXPECT_EQ(onebit_sizes(1, 3).worker_error, 24u);
}

}  // namespace
}  // namespace qccl::testing
