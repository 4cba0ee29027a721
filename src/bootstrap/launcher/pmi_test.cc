#include "bootstrap/launcher/pmi.h"

#include <gtest/gtest.h>

#include <future>

#include "bootstrap/test_support.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

std::string read_line(const os::Fd& socket) {
  std::string line;
  for (char letter = 0; letter != '\n'; line.push_back(letter)) {
    os::read_exactly(socket, std::as_writable_bytes(std::span(&letter, 1)), soon(), kClock).take_or_throw();
  }
  line.pop_back();
  return line;
}

void write_line(const os::Fd& socket, const std::string& text) {
  const std::string line = text + "\n";
  os::write_exactly(socket, std::as_bytes(std::span(line)), kForever, kClock).take_or_throw();
}

Result<std::string> share(const os::Fd& socket, int rank, Nanoseconds limit = seconds(30)) {
  return pmi_share(socket.get(), rank, "4000/10.0.0.1", soon(limit), kClock);
}

// A failure is not remembered, so these come before the test that succeeds, in one process or each alone.
TEST(Pmi, a_refusal_of_the_launcher_is_quoted) {
  const auto pair = os::socket_pair().take_or_throw();
  write_line(pair.second, "cmd=response_to_init rc=-1");
  expect_failure(share(pair.first, 0), ErrorKind::unsupported, "cmd=response_to_init rc=-1");
}

TEST(Pmi, a_launcher_that_ends_is_peer_lost) {
  auto pair = os::socket_pair().take_or_throw();
  pair.second.reset();
  expect_failure(share(pair.first, 0), ErrorKind::peer_lost, "did not answer cmd=init");
}

TEST(Pmi, missing_ranks_are_a_failure_at_the_deadline) {
  const auto pair = os::socket_pair().take_or_throw();
  write_line(pair.second, "cmd=response_to_init rc=0");
  write_line(pair.second, "cmd=my_kvsname kvsname=k");
  expect_failure(share(pair.first, 1, milliseconds(50)), ErrorKind::deadline_exceeded, "cmd=barrier_in");
}

TEST(Pmi, rank_0_puts_and_all_get_and_the_answer_is_kept) {
  const auto pair = os::socket_pair().take_or_throw();
  EXPECT_FALSE(pmi_has_shared());
  auto shared = std::async(std::launch::async, [&] { return share(pair.first, 0); });
  const auto answer = [&](const std::string& request, const std::string& reply) {
    EXPECT_EQ(read_line(pair.second), request);
    write_line(pair.second, reply);
  };
  answer("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
  answer("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1");
  answer("cmd=put kvsname=kvs_1 key=qccl-master value=4000/10.0.0.1", "cmd=put_result rc=0 msg=success");
  answer("cmd=barrier_in", "cmd=barrier_out");
  answer("cmd=get kvsname=kvs_1 key=qccl-master", "cmd=get_result rc=0 msg=success value=4000/10.0.0.1");
  answer("cmd=finalize", "cmd=finalize_ack");
  EXPECT_EQ(shared.get().take_or_throw(), "4000/10.0.0.1");
  EXPECT_TRUE(pmi_has_shared());
  EXPECT_EQ(share(os::Fd(), 0).take_or_throw(), "4000/10.0.0.1");
}

}  // namespace
}  // namespace qccl::bootstrap
