#include "device_engine/lanes/device_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/options.h"
#include "codec/registry.h"
#include "plan/plan.h"

namespace qccl::engine {
namespace {

constexpr int kWorld = 4;
constexpr std::array kCollectives = {
    Collective::all_reduce, Collective::broadcast,  Collective::all_gather, Collective::reduce_scatter,
    Collective::reduce,     Collective::all_to_all, Collective::gather,     Collective::scatter,
};

ResolvedCall call_of(Collective collective, Algorithm algorithm) {
  ResolvedCall call;
  call.collective = collective;
  call.type = DataType::float32;
  call.count = 1'000'003;
  call.algorithm = algorithm;
  call.slice_bytes = kDefaultSliceBytes;
  call.hosts = {0, 0, 1, 1};
  return call;
}

// "all_reduce ring", of each plan that does not run on a device.
std::vector<std::string> staged(const Compression& compression) {
  std::vector<std::string> found;
  for (const Collective collective : kCollectives) {
    for (const Algorithm algorithm : plan::algorithms_of(collective)) {
      ResolvedCall call = call_of(collective, algorithm);
      call.compression = compression;
      const auto codec = make_codec(compression).take_or_throw();
      bool has_lanes = true;
      for (int rank = 0; rank < kWorld; ++rank) {
        const ExecutablePlan plan(call, kWorld, GroupRank(rank), codec);
        has_lanes &= device_lane_bytes(plan, kWorld) > 0;
      }
      if (!has_lanes) found.push_back(std::string(to_string(collective)) + " " + std::string(to_string(algorithm)));
    }
  }
  return found;
}

// It goes on with sums that it has sent.
constexpr const char* kRecursiveDoubling = "all_reduce recursive_doubling";

TEST(DeviceLayout, uncompressed_plans_run_on_a_device) {
  EXPECT_EQ(staged(none()), std::vector<std::string>{kRecursiveDoubling});
}

TEST(DeviceLayout, compressed_plans_run_on_a_device_unless_they_add_what_they_decode_of_their_own) {
  for (const Compression& compression : {minmax({.bits = 4}), grid(), grid({.bound = 0.1})}) {
    EXPECT_EQ(staged(compression), (std::vector<std::string>{"all_reduce one_shot", kRecursiveDoubling}));
  }
}

TEST(DeviceLayout, codecs_without_kernels_run_on_the_host) {
  EXPECT_EQ(staged(minmax({.bits = 9})).size(), staged(topk({.density = 0.01})).size());
  EXPECT_EQ(staged(grid({.entropy = true})).size(), staged(topk({.density = 0.01})).size());
  EXPECT_GT(staged(topk({.density = 0.01})).size(), 10u);
}

}  // namespace
}  // namespace qccl::engine
