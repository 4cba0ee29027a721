#include "extras/train/buckets.h"

#include <gtest/gtest.h>

namespace qccl::train {
namespace {

using Buckets = std::vector<std::vector<std::size_t>>;

Buckets members(const std::vector<std::size_t>& kilobytes, std::size_t first, std::size_t others) {
  static std::vector<float> memory(1 << 20);
  std::vector<Parameter> parameters;
  for (const std::size_t size : kilobytes) {
    parameters.push_back({"", std::span(memory).first(size * 256), std::span(memory).first(size * 256)});
  }
  return bucket_members(parameters, {.first_bucket_bytes = first * 1024, .bucket_bytes = others * 1024});
}

TEST(Buckets, go_from_the_last_parameter_to_the_first) {
  EXPECT_EQ(members({1, 1, 1}, 100, 100), (Buckets{{2, 1, 0}}));
}

TEST(Buckets, the_first_is_smaller) { EXPECT_EQ(members({3, 3, 3, 3, 3}, 1, 6), (Buckets{{4}, {3, 2}, {1, 0}})); }

TEST(Buckets, end_with_the_parameter_that_reaches_the_limit) {
  EXPECT_EQ(members({1, 50, 1, 1}, 2, 10), (Buckets{{3, 2}, {1}, {0}}));
}

TEST(Buckets, of_no_parameters_are_none) { EXPECT_EQ(members({}, 1, 1), Buckets{}); }

}  // namespace
}  // namespace qccl::train
