// Payloads that the network writes directly to their destination while they are under way: they arrive there, and an
// operation that has ended releases the destinations of payloads still to come.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/sim_call.h"

namespace qccl::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

std::vector<engine::ResolvedCall> large_calls(int world) {
  return {make_call(Collective::all_reduce, 200000, DataType::float32, world, {.algorithm = Algorithm::sra}),
          make_call(Collective::all_reduce, 200000, DataType::float32, world, {.algorithm = Algorithm::ring}),
          make_call(Collective::all_reduce, 200000, DataType::float32, world, {.algorithm = Algorithm::tree}),
          make_call(Collective::all_gather, 100000, DataType::float32, world),
          make_call(Collective::broadcast, 200000, DataType::float32, world, {.root = 1}),
          make_call(Collective::all_to_all, 100000, DataType::float32, world)};
}

std::uint64_t placed_frames(SimWorld& world) {
  std::uint64_t placed = 0;
  for (int rank = 0; rank < world.size(); ++rank) placed += world.network().endpoint(rank).placed_frames();
  return placed;
}

TEST(Placement, of_uncompressed_payloads_leaves_every_result_as_it_must_be) {
  for (const engine::ResolvedCall& each : large_calls(4)) {
    SCOPED_TRACE(each.describe());
    SimWorld world(4, {.seed = 5, .slice_bytes = 16384});
    SimCall call(world, world_group(world), each);
    call.post_all();
    ASSERT_TRUE(world.run(call.works()));
    EXPECT_EQ(call.verify(), "");
    EXPECT_GT(placed_frames(world), 10u);
  }
}

TEST(Placement, is_for_what_goes_to_the_output_as_it_is) {
  SimWorld world(4, {.slice_bytes = 16384});
  const CallOptions compressed{.compression = minmax({.bits = 8})};
  SimCall call(world, world_group(world), make_call(Collective::all_reduce, 200000, DataType::float32, 4, compressed));
  call.post_all();
  ASSERT_TRUE(world.run(call.works()));
  EXPECT_EQ(placed_frames(world), 0u);
}

// Payloads that had a destination at that moment must not be written to it.
TEST(Placement, of_an_aborted_call_is_given_up_at_once) {
  std::size_t given_up = 0;
  for (const engine::ResolvedCall& each : large_calls(3)) {
    for (int moment = 1; moment < 30; ++moment) {
      SCOPED_TRACE(fmt::format("{}, moment {}", each.describe(), moment));
      SimWorld world(3, {.slice_bytes = 16384});
      SimCall call(world, world_group(world), each);
      call.post_all();
      world.run_for(microseconds(25 * moment));
      given_up += world.network().endpoint(0).destinations_in_use();
      world.engine(0).groups().fail(kSimGroup, {.kind = ErrorKind::aborted, .message = "enough"});
      EXPECT_EQ(world.network().endpoint(0).destinations_in_use(), 0u);
      const ByteVector then = call.result(0);
      world.run_for(milliseconds(50));
      ASSERT_EQ(call.result(0), then);
    }
  }
  EXPECT_GT(given_up, 20u);
}

constexpr std::size_t kBytes = 1'000'001;

SimMessage message(std::vector<std::byte>& bytes) {
  return {.count = bytes.size(), .type = DataType::uint8, .data = bytes.data()};
}

TEST(Placement, of_a_message_goes_on_after_slices_that_came_elsewhere) {
  SimWorld world(2, {.slice_bytes = 16384});
  std::vector<std::byte> source(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) source[i] = static_cast<std::byte>(i % 251);
  std::vector<std::byte> target(kBytes, std::byte{0xEE});
  world.post_message(0, {.peer = GroupRank(1)}, message(source));
  const auto work = world.post_message(1, {.incoming = true, .peer = GroupRank(0)}, message(target));
  ASSERT_TRUE(world.run({work}));
  EXPECT_EQ(target, source);
  EXPECT_GT(placed_frames(world), 30u);  // of 62; the network does not place a third of them
}

TEST(Placement, of_an_aborted_message_is_given_up_at_once) {
  std::size_t given_up = 0;
  for (int moment = 1; moment < 30; ++moment) {
    SCOPED_TRACE(fmt::format("moment {}", moment));
    SimWorld world(2, {.slice_bytes = 16384});
    std::vector<std::byte> source(kBytes, std::byte{7});
    std::vector<std::byte> target(kBytes, std::byte{0xEE});
    world.post_message(0, {.peer = GroupRank(1)}, message(source));
    world.post_message(1, {.incoming = true, .peer = GroupRank(0)}, message(target));
    world.run_for(microseconds(25 * moment));
    given_up += world.network().endpoint(1).destinations_in_use();
    world.engine(1).groups().fail(kSimGroup, {.kind = ErrorKind::aborted, .message = "enough"});
    const std::vector<std::byte> then = target;
    world.run_for(milliseconds(50));
    ASSERT_EQ(target, then);
  }
  EXPECT_GT(given_up, 5u);
}

}  // namespace
}  // namespace qccl::testing
