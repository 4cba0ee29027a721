// Sums of 16-bit floats that are sent uncompressed, compared with exact sums: the owner adds them in float32 and rounds
// once. Only algorithms that send partial sums (ring, tree, hierarchical) round more often.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/half.h"
#include "support/sim_collective.h"

namespace qccl::testing {
namespace {

constexpr std::size_t kCount = 3001;  // of each rank's part

std::uint16_t bits_of(DataType type, int value) {
  const auto x = static_cast<float>(value);
  return type == DataType::float16 ? to_float16(x).bits : to_bfloat16(x).bits;
}

// Whole numbers of 8 bits times powers of two: the formats represent them exactly, and float32 represents all their
// sums.
struct Numbers {
  explicit Numbers(int world) {
    std::mt19937 random(7);
    for (int rank = 0; rank < world; ++rank) {
      auto& own = values.emplace_back();
      for (std::size_t i = 0; i < kCount * static_cast<std::size_t>(world); ++i) {
        own.push_back((static_cast<int>(random() % 511) - 255) << random() % 5);
      }
    }
  }

  std::vector<ByteVector> inputs(DataType type) const {
    std::vector<ByteVector> all;
    for (const auto& own : values) {
      ByteVector& bytes = all.emplace_back(own.size() * 2);
      for (std::size_t i = 0; i < own.size(); ++i) {
        const std::uint16_t bits = bits_of(type, own[i]);
        std::memcpy(bytes.data() + 2 * i, &bits, 2);
      }
    }
    return all;
  }

  // The number of elements of a rank's part that differ from the exact sum, rounded once.
  std::size_t differences(DataType type, int rank, const ByteVector& output) const {
    std::size_t different = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      int sum = 0;
      for (const auto& own : values) sum += own[static_cast<std::size_t>(rank) * kCount + i];
      std::uint16_t bits = 0;
      std::memcpy(&bits, output.data() + 2 * i, 2);
      different += bits != bits_of(type, sum) ? 1 : 0;
    }
    return different;
  }

  std::vector<std::vector<int>> values;  // by rank
};

class HalfSums : public ::testing::TestWithParam<int> {
 protected:
  // The number over all ranks.
  std::size_t differences(DataType type, Algorithm algorithm) {
    const auto call = make_call(Collective::reduce_scatter, kCount, type, world_, {.algorithm = algorithm});
    const CollectiveResult outcome = run_collective(sim_, call, numbers_.inputs(type));
    EXPECT_EQ(outcome.problem, "");
    std::size_t all = 0;
    for (int rank = 0; rank < world_; ++rank) {
      all += numbers_.differences(type, rank, outcome.outputs[static_cast<std::size_t>(rank)]);
    }
    return all;
  }

  static std::vector<int> pairs(int world) {
    std::vector<int> hosts;
    for (int rank = 0; rank < world; ++rank) hosts.push_back(rank / 2);
    return hosts;
  }

  const int world_ = GetParam();
  const Numbers numbers_{world_};
  SimWorld sim_{world_, {.seed = 3, .slice_bytes = 4096, .hosts = pairs(world_)}};
};

TEST_P(HalfSums, reduce_scatter_rounds_them_once) {
  for (const DataType type : {DataType::bfloat16, DataType::float16}) {
    EXPECT_EQ(differences(type, Algorithm::one_shot), 0u) << to_string(type);
  }
}

// The counterpart of the test above: the check does detect additional rounding.
TEST_P(HalfSums, reduce_scatter_in_a_ring_rounds_them_more_often) {
  EXPECT_GT(differences(DataType::bfloat16, Algorithm::ring), kCount / 100);
}

TEST_P(HalfSums, reduce_scatter_between_hosts_of_several_ranks_rounds_them_twice) {
  EXPECT_GT(differences(DataType::bfloat16, Algorithm::hierarchical), kCount / 100);
}

INSTANTIATE_TEST_SUITE_P(Simulated, HalfSums, ::testing::Values(3, 4, 8),
                         [](const auto& info) { return fmt::format("world_{}", info.param); });

}  // namespace
}  // namespace qccl::testing
