// A rank that is declared lost while it lives is told so at once, with the peer that gave it up and the reason.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/sim_call.h"
#include "wire/frame.h"

namespace qccl::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

engine::ResolvedCall all_reduce(std::uint64_t count, int world) {
  return make_call(Collective::all_reduce, count, DataType::float32, world);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Rank `damaged`'s first data frame to rank 0 fails its checksum there.
void damage_a_frame(SimWorld& world, int damaged) {
  world.network().set_tap([damaged, done = false](int from, int to, Bytes frame) mutable {
    const auto header = wire::decode_header(frame.data());
    if (done || from != damaged || to != 0 || header.value().kind != wire::FrameKind::data) return;
    frame.back() ^= std::byte{1};
    done = true;
  });
}

TEST(GivenUp, a_rank_whose_data_was_damaged_learns_by_whom_and_why) {
  for (const std::uint64_t count : {1000, 400000}) {
    SimWorld world(2);
    damage_a_frame(world, 1);
    SimCall call(world, world_group(world), all_reduce(count, 2));
    call.post_all();
    world.run_for(milliseconds(100));
    SimCall next(world, world_group(world), all_reduce(10, 2));
    next.post_all();
    world.run_for(milliseconds(1));
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(next.done(rank) && next.failure(rank)) << "rank " << rank << " waits for its deadline";
      const ErrorInfo& failure = *next.failure(rank);
      EXPECT_EQ(failure.kind, ErrorKind::corrupt_data) << failure.message;
      EXPECT_EQ(failure.peer, 1 - rank) << failure.message;
      EXPECT_TRUE(contains(failure.message, "sent a payload that fails its checksum")) << failure.message;
      EXPECT_EQ(contains(failure.message, "rank 0 gave this rank up"), rank == 1) << failure.message;
    }
    world.settle();
    EXPECT_EQ(world.held_frames(), 0u);
  }
}

// The last frame's first line is the number of the kind.
TEST(GivenUp, a_rank_learns_of_which_kind_and_takes_an_unknown_kind_for_a_loss) {
  const int last = static_cast<int>(ErrorKind::unsupported);
  for (int number = 0; number <= last + 1; ++number) {
    SimWorld world(2);
    world.network().set_tap([&](int, int to, Bytes frame) {
      wire::FrameHeader header = wire::decode_header(frame.data()).value();
      if (to == 0 && header.kind == wire::FrameKind::data) frame.back() ^= std::byte{1};
      if (header.kind != wire::FrameKind::given_up) return;
      const Bytes text = frame.subspan(wire::kHeaderBytes);
      text[0] = static_cast<std::byte>('0' + number);
      header.payload_checksum = wire::payload_checksum(text);
      wire::encode_header(header, frame.data());
    });
    SimCall call(world, world_group(world), make_call(Collective::gather, 1000, DataType::float32, 2, {.root = 0}));
    call.post_all();
    world.run_for(milliseconds(100));
    SimCall next(world, world_group(world), all_reduce(10, 2));
    next.post(1);
    world.run_for(milliseconds(1));
    ASSERT_TRUE(next.done(1) && next.failure(1)) << number;
    const ErrorKind expected = number <= last ? static_cast<ErrorKind>(number) : ErrorKind::peer_lost;
    EXPECT_EQ(next.failure(1)->kind, expected) << next.failure(1)->message;
    EXPECT_TRUE(contains(next.failure(1)->message, "rank 0 gave this rank up")) << next.failure(1)->message;
  }
}

// The rank was stopped for longer than its peers wait, and resumes. After 100 s heartbeats have filled all the room,
// and the last frame waits for some.
TEST(GivenUp, a_rank_that_was_silent_too_long_learns_by_whom_and_why_when_it_goes_on) {
  for (const auto& [world_size, patience] : {std::pair(2, 20), std::pair(3, 20), std::pair(2, 100)}) {
    SimWorld world(world_size, {.peer_timeout = seconds(patience)});
    SimCall call(world, world_group(world), all_reduce(400000, world_size));
    world.run_for(seconds(1));
    world.network().stop(1);
    for (int rank = 0; rank < world_size; ++rank) {
      if (rank != 1) call.post(rank, std::chrono::hours(10));
    }
    world.run_for(seconds(patience + 10));
    world.network().resume(1);
    call.post(1, std::chrono::hours(10));
    world.run_for(milliseconds(500));
    ASSERT_TRUE(call.done(1) && call.failure(1)) << "waits for its own peer timeout";
    const ErrorInfo& failure = *call.failure(1);
    EXPECT_EQ(failure.kind, ErrorKind::peer_lost) << failure.message;
    EXPECT_TRUE(contains(failure.message, fmt::format("silent for {}", patience))) << failure.message;
    if (world_size == 2) EXPECT_TRUE(contains(failure.message, "rank 0 gave this rank up")) << failure.message;
    for (int rank = 0; rank < world_size; ++rank) {
      if (rank != 1) EXPECT_EQ(call.failure(rank)->peer, 1) << call.failure(rank)->message;
    }
    world.settle();
    EXPECT_EQ(world.held_frames(), 0u);
  }
}

// The peers' failures name the rank that was given up, even if they hear from it first.
TEST(GivenUp, a_rank_is_blamed_by_all_others_whoever_tells_them) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SimWorld world(4, {.seed = seed});
    damage_a_frame(world, 2);
    SimCall call(world, world_group(world), all_reduce(100000, 4));
    call.post_all();
    world.run_for(milliseconds(200));
    for (const int rank : {0, 1, 3}) {
      ASSERT_TRUE(call.done(rank) && call.failure(rank)) << "rank " << rank;
      EXPECT_EQ(call.failure(rank)->peer, 2) << call.failure(rank)->message;
    }
  }
}

// Nothing that it sends afterwards reaches the rank that gave it up, in any group.
TEST(GivenUp, a_rank_takes_no_part_in_groups_that_are_opened_afterwards) {
  SimWorld world(3);
  damage_a_frame(world, 1);
  SimCall call(world, world_group(world), all_reduce(1000, 3));
  call.post_all();
  world.run_for(milliseconds(100));
  const SimGroup late{9, {0, 1}};
  world.open_group(late.id, "late", late.ranks);
  SimCall next(world, late, all_reduce(100, 2));
  next.post_all();
  world.run_for(milliseconds(5));
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(next.done(rank)) << "rank " << rank << " hangs";
    EXPECT_TRUE(contains(next.failure(rank)->message, "can't take part")) << next.failure(rank)->message;
    EXPECT_EQ(next.failure(rank)->peer, 1 - rank);
  }
  const SimGroup others{10, {0, 2}};
  world.open_group(others.id, "others", others.ranks);
  SimCall between_others(world, others, all_reduce(100000, 2));
  between_others.post_all();
  ASSERT_TRUE(world.run(between_others.works()));
  EXPECT_EQ(between_others.verify(), "");
}

}  // namespace
}  // namespace qccl::testing
