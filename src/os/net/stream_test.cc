
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <vector>

#include "os/memory.h"
#include "os/net/socket.h"

namespace qccl::os {
namespace {

std::vector<std::byte> pattern(std::size_t bytes, int seed) {
  std::vector<std::byte> result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) result[i] = static_cast<std::byte>(i * 31 + static_cast<unsigned>(seed));
  return result;
}

struct Stream : ::testing::Test {
  int near() const { return pair.first.get(); }
  int far() const { return pair.second.get(); }
  SocketPair pair = socket_pair().take_or_throw();
};

TEST_F(Stream, reading_an_idle_socket_would_block) {
  std::array<std::byte, 8> target;
  const IoResult io = read_some(near(), target);
  EXPECT_TRUE(io.would_block);
  EXPECT_FALSE(io.ok() || io.lost());
}

TEST_F(Stream, gathers_pieces_and_scatters_into_two_places) {
  const auto a = pattern(10, 1), b = pattern(20, 2), c = pattern(30, 3);
  const std::array<ConstBytes, 3> pieces{a, b, c};
  ASSERT_EQ(write_some(near(), pieces).bytes, 60u);
  std::vector<std::byte> first(15), second(100), expected;
  const IoResult io = read_some(far(), first, second);
  ASSERT_EQ(io.bytes, 60u);
  for (const auto* piece : {&a, &b, &c}) expected.insert(expected.end(), piece->begin(), piece->end());
  second.resize(45);
  first.insert(first.end(), second.begin(), second.end());
  EXPECT_EQ(first, expected);
}

TEST_F(Stream, writing_into_a_full_socket_would_block) {
  const auto block = pattern(1 << 16, 0);
  IoResult io;
  do io = write_some(near(), block);
  while (io.ok());
  EXPECT_TRUE(io.would_block);
  EXPECT_FALSE(io.lost());
}

TEST_F(Stream, end_of_file_comes_after_the_last_bytes) {
  ASSERT_EQ(write_some(near(), pattern(5, 0)).bytes, 5u);
  pair.first.reset();
  EXPECT_FALSE(peer_closed(far())) << "bytes are left to read";
  std::array<std::byte, 8> target;
  EXPECT_EQ(read_some(far(), target).bytes, 5u);
  EXPECT_TRUE(peer_closed(far()));
  const IoResult io = read_some(far(), target);
  EXPECT_TRUE(io.closed);
  EXPECT_EQ(describe(io), "closed the connection (end of file)");
}

TEST_F(Stream, writing_to_a_closed_peer_is_an_error_and_no_signal) {
  pair.second.reset();
  const IoResult io = write_some(near(), pattern(5, 0));
  EXPECT_EQ(io.error, EPIPE);
  EXPECT_EQ(describe(io), "Broken pipe (errno 32)");
}

TEST_F(Stream, descriptors_travel_with_their_bytes_and_work) {
  const auto memory = create_shared_memory("test", 4096).take_or_throw();
  const Fd bell = create_eventfd().take_or_throw();
  memory.mapping.data()[7] = std::byte{99};
  const std::array<int, 2> descriptors{memory.fd.get(), bell.get()};
  ASSERT_EQ(send_descriptors(near(), pattern(3, 5), descriptors).bytes, 3u);

  std::vector<std::byte> target(16);
  std::vector<Fd> received;
  ASSERT_EQ(recv_descriptors(far(), target, received).bytes, 3u);
  target.resize(3);
  EXPECT_EQ(target, pattern(3, 5));
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(map_shared_memory(received[0], 4096).take_or_throw().data()[7], std::byte{99});
  ring_eventfd(received[1]);
  EXPECT_TRUE(drain_eventfd(bell));
}

TEST_F(Stream, bytes_without_descriptors_bring_none) {
  ASSERT_EQ(send_descriptors(near(), pattern(3, 5), {}).bytes, 3u);
  std::vector<std::byte> target(16);
  std::vector<Fd> received;
  EXPECT_EQ(recv_descriptors(far(), target, received).bytes, 3u);
  EXPECT_TRUE(received.empty());
  EXPECT_TRUE(recv_descriptors(far(), target, received).would_block);
}

TEST_F(Stream, too_many_descriptors_are_refused) {
  const std::vector<int> descriptors(kMaxDescriptors + 1, near());
  EXPECT_EQ(send_descriptors(near(), pattern(1, 0), descriptors).error, EINVAL);
}

TEST(TcpBuffers, have_the_sizes_that_the_system_says) {
  for (const char* name : {"tcp_wmem", "tcp_rmem"}) {
    const auto sizes = tcp_buffer_sizes(name);
    ASSERT_TRUE(sizes) << name;
    EXPECT_GE(sizes->least, 1u);
    EXPECT_GT(sizes->largest, 4096u);
    EXPECT_LE(sizes->initial, sizes->largest);
  }
  EXPECT_FALSE(tcp_buffer_sizes("no_such_setting"));
}

}  // namespace
}  // namespace qccl::os
