#include "transport/shm/shm_endpoint.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>
#include <vector>

#include "base/expect_failure.h"
#include "os/net/socket.h"
#include "transport/mesh_test.h"

namespace qccl::shm {
namespace {

using transport_test::wait_limit;
using namespace std::chrono_literals;

LinkMessage message(LinkMessageKind kind, int rank, int target, std::uint32_t large_slots = 16) {
  return {.kind = kind,
          .rank = rank,
          .target = target,
          .large_slots = large_slots,
          .pair_bytes = pair_bytes(large_slots),
          .heap_bytes = kHeapBytes};
}

// A rank 1 that answers rank 0 as the test likes, or a rank 0 that makes an offer to rank 1.
class ShmLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto pair = os::socket_pair();
    ASSERT_TRUE(pair.ok());
    own_ = std::move(pair->first);
    peer_ = std::move(pair->second);
  }

  static ShmExports exports(int rank, int local_ranks = 8) { return create_shm_exports(rank, local_ranks); }

  void send_from_peer(const LinkMessage& message, std::vector<int> descriptors = {}) {
    ASSERT_TRUE(os::send_descriptors(peer_.get(), std::as_bytes(std::span(&message, 1)), descriptors).ok());
  }
  // The error of rank `rank`, which links with the other rank, after the peer's messages.
  ErrorInfo failure_of(int rank) {
    const auto link = make_shm_link(std::move(own_), exports(rank), 1 - rank, wait_limit(), SteadyClock());
    EXPECT_FALSE(link.ok());
    return link.ok() ? ErrorInfo{} : link.error();
  }
  // This rank refuses with the kind, after the peer's messages, and sends that to the peer.
  void expect_refusal(int rank, ErrorKind kind) {
    EXPECT_EQ(failure_of(rank).kind, kind);
    LinkMessage last;
    std::vector<os::Fd> descriptors;
    const Bytes target = std::as_writable_bytes(std::span(&last, 1));
    while (os::recv_descriptors(peer_.get(), target, descriptors).bytes == target.size()) {
      EXPECT_TRUE(check(last).ok());
    }
    EXPECT_EQ(last.kind, LinkMessageKind::refused);
    EXPECT_EQ(last.reason, static_cast<std::uint32_t>(kind));
  }

  os::Fd own_, peer_;
};

TEST_F(ShmLinkTest, both_sides_see_the_same_memory) {
  const ShmExports low = exports(3), high = exports(5, 16);
  std::optional<Result<ShmLink>> of_high;
  std::thread other([&] { of_high.emplace(make_shm_link(std::move(peer_), high, 3, wait_limit(), SteadyClock())); });
  auto of_low = make_shm_link(std::move(own_), low, 5, wait_limit(), SteadyClock());
  other.join();
  ASSERT_TRUE(of_low.ok() && of_high->ok());
  EXPECT_EQ(of_low->large_slots, 16u);
  EXPECT_EQ((*of_high)->large_slots, 16u) << "the lower rank decides";
  EXPECT_EQ(of_low->pair->size(), pair_bytes(16));
  of_low->pair->data()[1000] = std::byte{1};
  EXPECT_EQ((*of_high)->pair->data()[1000], std::byte{1});
  of_low->area->data()[4096] = std::byte{2};
  EXPECT_EQ(high.area->data()[4096], std::byte{2});
  (*of_high)->area->data()[4096] = std::byte{3};
  EXPECT_EQ(low.area->data()[4096], std::byte{3});
  os::ring_eventfd(of_low->doorbell);
  EXPECT_TRUE(os::drain_eventfd(high.doorbell));
  EXPECT_FALSE(os::drain_eventfd(low.doorbell));
}

TEST_F(ShmLinkTest, more_ranks_on_a_host_get_fewer_slots_each) {
  EXPECT_EQ(exports(0, 2).large_slots, 16u);
  EXPECT_EQ(exports(0, 8).large_slots, 16u);
  EXPECT_EQ(exports(0, 16).large_slots, 8u);
  EXPECT_EQ(exports(0, 200).large_slots, 4u);
}

TEST_F(ShmLinkTest, a_peer_that_closes_is_lost) {
  peer_.reset();
  const auto error = failure_of(1);
  EXPECT_EQ(error.kind, ErrorKind::peer_lost);
  EXPECT_EQ(error.peer, 0);
  EXPECT_EQ(error.message, "rank 1 can't share memory with rank 0: closed the connection (end of file)");
}

TEST_F(ShmLinkTest, a_silent_peer_exceeds_the_deadline) {
  const auto link = make_shm_link(std::move(own_), exports(0), 1, SteadyClock().now() + 5ms, SteadyClock());
  expect_failure(link, ErrorKind::deadline_exceeded);
}

TEST_F(ShmLinkTest, a_refusal_fails_both_sides_with_its_kind) {
  LinkMessage refusal = message(LinkMessageKind::refused, 1, 0);
  refusal.reason = static_cast<std::uint32_t>(ErrorKind::resource_exhausted);
  send_from_peer(refusal);
  const auto error = failure_of(0);
  EXPECT_EQ(error.kind, ErrorKind::resource_exhausted);
  EXPECT_EQ(error.message, "rank 0 can't share memory with rank 1: rank 1 refused (resource_exhausted)");
}

// Rank 1 gets the first messages as an offer, rank 0 the others as an answer to its own offer.
TEST_F(ShmLinkTest, a_wrong_message_is_refused_with_its_kind) {
  const ShmExports low = exports(0), high = exports(1);
  const os::Fd unsealed(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), sizeof(Area)), 0);
  LinkMessage other_layout = message(LinkMessageKind::offer, 0, 1), no_message = other_layout;
  ++other_layout.layout;
  no_message.magic = 0;
  const std::vector<int> pair_of_area_size{low.area_fd.get(), low.doorbell.get(), low.area_fd.get(),
                                           low.heap->fd.get()};
  const struct {
    const char* what;
    int rank;
    LinkMessage message;
    std::vector<int> descriptors;
    ErrorKind kind = ErrorKind::corrupt_data;
  } cases[] = {
      {"no message", 1, no_message, {}},
      {"another layout", 1, other_layout, {}, ErrorKind::unsupported},
      {"for another rank", 1, message(LinkMessageKind::offer, 0, 2), pair_of_area_size},
      {"out of order", 1, message(LinkMessageKind::accepted, 0, 1), {}},
      {"memory of another size", 1, message(LinkMessageKind::offer, 0, 1), pair_of_area_size},
      {"no descriptors", 0, message(LinkMessageKind::answer, 1, 0), {}},
      {"an unsealed area",
       0,
       message(LinkMessageKind::answer, 1, 0),
       {high.doorbell.get(), unsealed.get(), high.heap->fd.get()}},
      {"a heap of another size",
       0,
       message(LinkMessageKind::answer, 1, 0),
       {high.doorbell.get(), high.area_fd.get(), high.area_fd.get()}},
  };
  for (const auto& wrong : cases) {
    SCOPED_TRACE(wrong.what);
    SetUp();
    send_from_peer(wrong.message, wrong.descriptors);
    expect_refusal(wrong.rank, wrong.kind);
  }
}

TEST(LinkMessage, fields_that_do_not_fit_the_layout_are_corrupt_data) {
  struct Case {
    std::size_t offset;
    std::vector<std::uint64_t> values;
  };
  const Case cases[] = {{12, {0, 9}},                  // kind
                        {24, {0, 1, 17, 0xFFFFFFFF}},  // large_slots
                        {28, {9}},                     // reason
                        {32, {0, 1, 17, 0xFFFFFFFF}},  // pair_bytes
                        {40, {0, 1, 17, 0xFFFFFFFF}},  // area_bytes
                        {48, {kHeapBytes + kPageBytes, kPageBytes + 1, 1}}};
  for (const auto& [offset, values] : cases) {
    for (const std::uint64_t value : values) {
      LinkMessage changed = message(LinkMessageKind::offer, 0, 1);
      ASSERT_TRUE(check(changed).ok());
      std::byte* const field = reinterpret_cast<std::byte*>(&changed) + offset;
      offset < 32 ? store(field, static_cast<std::uint32_t>(value)) : store(field, value);
      SCOPED_TRACE(offset);
      expect_failure(check(changed), ErrorKind::corrupt_data);
    }
  }
}

}  // namespace
}  // namespace qccl::shm
