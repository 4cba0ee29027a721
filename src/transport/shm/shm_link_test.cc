#include "transport/shm/shm_link.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <thread>
#include <vector>

#include "os/net/stream.h"
#include "os/net/unix_socket.h"
#include "transport/shm/area.h"
#include "transport/shm/layout.h"
#include "transport/shm/link_message.h"
#include "transport/shm/test_host.h"

namespace qccl::shm {
namespace {

using testing::patience;
using namespace std::chrono_literals;

using Message = std::array<std::byte, kLinkMessageBytes>;

// A rank 1 that answers rank 0 as the test likes, or a rank 0 that makes an offer to rank 1.
class ShmLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto pair = os::socket_pair();
    ASSERT_TRUE(pair.ok());
    own_ = std::move(pair->first);
    peer_ = std::move(pair->second);
  }

  static ShmHome home(int rank, int local_ranks = 8) { return create_shm_home(rank, local_ranks); }

  void peer_says(const LinkMessage& message, std::vector<int> descriptors = {}) {
    Message bytes;
    encode_link_message(message, bytes.data());
    ASSERT_TRUE(os::send_descriptors(peer_.get(), bytes, descriptors).ok());
  }
  // The error of rank `rank`, which links with the other rank, after the peer's messages.
  ErrorInfo failure_of(int rank) {
    const auto link = make_shm_link(std::move(own_), home(rank), 1 - rank, patience(), SteadyClock());
    EXPECT_FALSE(link.ok());
    return link.ok() ? ErrorInfo{} : link.error();
  }
  // The last message that the peer received.
  LinkMessage peer_hears() {
    Message bytes;
    std::vector<os::Fd> descriptors;
    LinkMessage last;
    while (os::recv_descriptors(peer_.get(), bytes, descriptors).bytes == bytes.size()) {
      auto message = decode_link_message(bytes.data());
      EXPECT_TRUE(message.ok());
      last = *message;
    }
    return last;
  }

  os::Fd own_, peer_;
};

TEST_F(ShmLinkTest, both_sides_see_the_same_memory) {
  const ShmHome low = home(3), high = home(5, 16);
  std::optional<Result<ShmLink>> of_high;
  std::thread other([&] { of_high.emplace(make_shm_link(std::move(peer_), high, 3, patience(), SteadyClock())); });
  auto of_low = make_shm_link(std::move(own_), low, 5, patience(), SteadyClock());
  other.join();
  ASSERT_TRUE(of_low.ok() && of_high->ok());
  EXPECT_EQ(of_low->large_slots, 16u);
  EXPECT_EQ((*of_high)->large_slots, 16u) << "the lower rank says how many";
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
  EXPECT_EQ(home(0, 2).large_slots, 16u);
  EXPECT_EQ(home(0, 8).large_slots, 16u);
  EXPECT_EQ(home(0, 16).large_slots, 8u);
  EXPECT_EQ(home(0, 200).large_slots, 4u);
}

TEST_F(ShmLinkTest, a_peer_that_closes_is_lost) {
  peer_.reset();
  const auto error = failure_of(1);
  EXPECT_EQ(error.kind, ErrorKind::peer_lost);
  EXPECT_EQ(error.peer, 0);
  EXPECT_EQ(error.message, "rank 1 can't share memory with rank 0: closed the connection (end of file)");
}

TEST_F(ShmLinkTest, a_silent_peer_exceeds_the_deadline) {
  const auto link = make_shm_link(std::move(own_), home(0), 1, SteadyClock().now() + 5ms, SteadyClock());
  ASSERT_FALSE(link.ok());
  EXPECT_EQ(link.error().kind, ErrorKind::deadline_exceeded);
}

TEST_F(ShmLinkTest, a_refusal_fails_both_sides_with_its_kind) {
  peer_says({LinkMessageKind::refused, 1, 0, 16, ErrorKind::resource_exhausted});
  const auto error = failure_of(0);
  EXPECT_EQ(error.kind, ErrorKind::resource_exhausted);
  EXPECT_EQ(error.message, "rank 0 can't share memory with rank 1: rank 1 refused (resource_exhausted)");
}

TEST_F(ShmLinkTest, bytes_that_are_no_message_are_refused) {
  const Message garbage{};
  ASSERT_TRUE(os::write_some(peer_.get(), garbage).ok());
  EXPECT_EQ(failure_of(1).kind, ErrorKind::corrupt_data);
  const auto answer = peer_hears();
  EXPECT_EQ(answer.kind, LinkMessageKind::refused);
  EXPECT_EQ(answer.reason, ErrorKind::corrupt_data);
}

TEST_F(ShmLinkTest, another_layout_is_unsupported) {
  Message bytes;
  encode_link_message({LinkMessageKind::offer, 0, 1, 16, {}}, bytes.data());
  store(bytes.data() + 8, kLayoutVersion + 1);
  ASSERT_TRUE(os::write_some(peer_.get(), bytes).ok());
  EXPECT_EQ(failure_of(1).kind, ErrorKind::unsupported);
}

TEST_F(ShmLinkTest, a_message_for_another_rank_is_refused) {
  const ShmHome stranger = home(0);
  peer_says({LinkMessageKind::offer, 0, 2, 16, {}},
            {stranger.area_fd.get(), stranger.doorbell.get(), stranger.area_fd.get(), stranger.heap->fd.get()});
  EXPECT_EQ(failure_of(1).kind, ErrorKind::corrupt_data);
}

TEST_F(ShmLinkTest, missing_descriptors_are_refused) {
  peer_says({LinkMessageKind::answer, 1, 0, 16, {}});
  EXPECT_EQ(failure_of(0).kind, ErrorKind::corrupt_data);
  EXPECT_EQ(peer_hears().kind, LinkMessageKind::refused);
}

TEST_F(ShmLinkTest, a_message_out_of_turn_is_refused) {
  peer_says({LinkMessageKind::accepted, 0, 1, 16, {}});
  EXPECT_EQ(failure_of(1).kind, ErrorKind::corrupt_data);
}

TEST_F(ShmLinkTest, memory_of_another_size_is_refused) {
  const ShmHome low = home(0);
  peer_says({LinkMessageKind::offer, 0, 1, 16, {}},
            {low.area_fd.get(), low.doorbell.get(), low.area_fd.get(), low.heap->fd.get()});
  const auto error = failure_of(1);
  EXPECT_EQ(error.kind, ErrorKind::corrupt_data);
  EXPECT_NE(error.message.find("bytes of shared memory where"), std::string::npos) << error.message;
}

TEST_F(ShmLinkTest, an_unsealed_area_is_refused) {
  const os::Fd unsealed(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), sizeof(Area)), 0);
  const ShmHome high = home(1);
  peer_says({LinkMessageKind::answer, 1, 0, 16, {}, kHeapBytes},
            {high.doorbell.get(), unsealed.get(), high.heap->fd.get()});
  EXPECT_EQ(failure_of(0).kind, ErrorKind::corrupt_data);
  EXPECT_EQ(peer_hears().kind, LinkMessageKind::refused);
}

TEST_F(ShmLinkTest, a_heap_of_another_size_is_refused) {
  const ShmHome high = home(1);
  peer_says({LinkMessageKind::answer, 1, 0, 16, {}, kHeapBytes},
            {high.doorbell.get(), high.area_fd.get(), high.area_fd.get()});
  EXPECT_EQ(failure_of(0).kind, ErrorKind::corrupt_data);
  EXPECT_EQ(peer_hears().kind, LinkMessageKind::refused);
}

TEST(LinkMessage, sizes_that_do_not_fit_the_layout_are_corrupt_data) {
  Message bytes;
  for (const std::size_t offset : {24, 32, 40}) {
    for (const std::uint32_t value : {0u, 1u, 17u, 0xFFFFFFFFu}) {
      encode_link_message({LinkMessageKind::offer, 0, 1, 16, {}}, bytes.data());
      store(bytes.data() + offset, value);
      auto message = decode_link_message(bytes.data());
      ASSERT_FALSE(message.ok()) << offset << " " << value;
      EXPECT_EQ(message.error().kind, ErrorKind::corrupt_data);
    }
  }
}

TEST(LinkMessage, a_heap_that_is_too_large_or_of_broken_pages_is_corrupt_data) {
  Message bytes;
  for (const std::uint64_t size : {kHeapBytes + kPageBytes, kPageBytes + 1, std::uint64_t{1}}) {
    encode_link_message({LinkMessageKind::offer, 0, 1, 16, {}, size}, bytes.data());
    const auto message = decode_link_message(bytes.data());
    ASSERT_FALSE(message.ok()) << size;
    EXPECT_EQ(message.error().kind, ErrorKind::corrupt_data);
  }
}

TEST(LinkMessage, unknown_kinds_and_reasons_are_corrupt_data) {
  Message bytes;
  for (const std::size_t offset : {12, 28}) {
    encode_link_message({LinkMessageKind::refused, 0, 1, 16, {}}, bytes.data());
    store(bytes.data() + offset, std::uint32_t{9});
    EXPECT_FALSE(decode_link_message(bytes.data()).ok()) << offset;
  }
}

}  // namespace
}  // namespace qccl::shm
