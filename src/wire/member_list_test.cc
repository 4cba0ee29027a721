#include "wire/member_list.h"

#include <gtest/gtest.h>

namespace qccl::wire {
namespace {

MemberList promise() {
  return {.kind = MemberListKind::promise, .ballot = {7, 2}, .other = {3, 1}, .members = {1, 0, 1}};
}

TEST(MemberList, every_message_is_read_as_it_was_written) {
  const MemberList suspects{
      .presence = Presence::here, .any_quorum = true, .members = {0, 3, MemberList::kLeftOut | 1}};
  for (const MemberList& message : {promise(), suspects, MemberList{.presence = Presence::closed}}) {
    const auto decoded = decode_member_list(encode_member_list(message), 3);
    ASSERT_TRUE(decoded.ok()) << decoded.error().message;
    EXPECT_EQ(decoded.value(), message);
  }
}

TEST(MemberList, layout_is_that_of_the_table) {
  const std::vector<std::byte> bytes = encode_member_list(promise());
  ASSERT_EQ(bytes.size(), 27u);
  EXPECT_EQ(bytes[0], std::byte{3});
  EXPECT_EQ(bytes[4], std::byte{7});
  EXPECT_EQ(bytes[8], std::byte{2});
  EXPECT_EQ(bytes[12], std::byte{3});
  EXPECT_EQ(bytes[16], std::byte{1});
  EXPECT_EQ(bytes[20], std::byte{3});
  EXPECT_EQ(bytes[26], std::byte{1});
}

TEST(MemberList, what_is_no_message_of_this_group_is_corrupt_data) {
  const std::vector<std::byte> good = encode_member_list(promise());
  const auto is_refused = [](const std::vector<std::byte>& bytes, std::size_t world) {
    const auto decoded = decode_member_list(bytes, world);
    return !decoded.ok() && decoded.error().kind == ErrorKind::corrupt_data;
  };
  EXPECT_TRUE(is_refused(good, 4)) << "of another size";
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_TRUE(is_refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}, 3)) << size << " bytes";
  }
  const auto changed = [&](std::size_t at, int value) {
    std::vector<std::byte> bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    return bytes;
  };
  EXPECT_TRUE(is_refused(changed(0, 0), 3)) << "unknown kind";
  EXPECT_TRUE(is_refused(changed(0, 8), 3)) << "unknown kind";
  EXPECT_TRUE(is_refused(changed(1, 1), 3)) << "flags that only suspects have";
  EXPECT_TRUE(is_refused(changed(2, 1), 3)) << "reserved";
  EXPECT_TRUE(is_refused(changed(8, 3), 3)) << "a proposer that is no member";
  EXPECT_TRUE(is_refused(changed(20, 200), 3)) << "a count beyond the end";
  EXPECT_TRUE(is_refused(changed(24, 2), 3)) << "a member neither in nor out";
  std::vector<std::byte> suspects = encode_member_list({.members = {0, 3, 0}});
  suspects[25] = std::byte{4};
  EXPECT_TRUE(is_refused(suspects, 3)) << "an unknown grade";
  suspects[25] = std::byte{3};
  suspects[1] = std::byte{4};
  EXPECT_TRUE(is_refused(suspects, 3)) << "an unknown presence";
}

}  // namespace
}  // namespace qccl::wire
