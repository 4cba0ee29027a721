// Failed allocations on the thread of rank 0's store: a connection may be lost, but every waiter learns of it, by an
// answer or the end of its connection, and the store carries on. The test's own thread allocates nothing meanwhile.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "bootstrap/store/tcp_store_server.h"
#include "memory/counted_new.h"

namespace qccl::testing {
namespace {

using namespace std::string_literals;
using bootstrap::TcpStoreServer;

constexpr timeval kPatience{.tv_sec = 10, .tv_usec = 0};
const std::string kIntroduction = "\x00\xCE\xF7\x85\x3C"s;
const std::string kPing = "\x0D\x2A\0\0\0"s;
const std::string kKeyName = "\x40\0\0\0\0\0\0\0/"s + std::string(63, 'k');  // too long for the short-string buffer
const std::string kWaitForKey = "\x06\x01\0\0\0\0\0\0\0"s + kKeyName;
const std::string kAwaitKey = "\x40"s + kKeyName;
const std::string kSetKey = "\x01"s + kKeyName + "\x03\0\0\0\0\0\0\0xyz"s;

// A connection that allocates no memory.
class Client {
 public:
  explicit Client(const TcpStoreServer& server) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
    is_connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    send(kIntroduction);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool is_connected() const { return is_connected_; }
  void send(const std::string& bytes) const {
    static_cast<void>(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  bool ping() const {
    send(kPing);
    std::array<char, 4> answer{};
    return ::recv(socket_, answer.data(), answer.size(), MSG_WAITALL) == 4;
  }
  // Whether an answer or the end of the connection has come.
  bool is_told() const {
    char byte = 0;
    return ::recv(socket_, &byte, 1, 0) >= 0 || errno == ECONNRESET;
  }

 private:
  int socket_;
  bool is_connected_ = false;
};

// Three clients wait, one for the value too. While memory is refused, a fourth connects, writes the key they wait for
// and leaves. Then a fifth writes it again. Returns whether memory was refused.
bool release_while_refusing(std::int64_t nth, std::int64_t count) {
  auto server = TcpStoreServer::start("127.0.0.1", 0).take_or_throw();
  const std::array<Client, 3> waiters{Client(*server), Client(*server), Client(*server)};
  for (const Client& waiter : waiters) {
    waiter.send(&waiter == &waiters[1] ? kAwaitKey : kWaitForKey);
    EXPECT_TRUE(waiter.is_connected() && waiter.ping());
  }
  refuse_allocation(nth, count);
  {
    const Client writer(*server);
    writer.send(kSetKey);
    static_cast<void>(writer.ping());
  }
  const bool was_refused = stop_refusing();
  const Client again(*server);
  again.send(kSetKey);
  EXPECT_TRUE(again.ping()) << "the store has ended";
  for (const Client& waiter : waiters) EXPECT_TRUE(waiter.is_told()) << "a client waits for ever";
  return was_refused;
}

// Two clients begin to wait while memory is refused; then the store ends, again without memory. All clients learn it.
bool stop_while_refusing(std::int64_t nth, std::int64_t count) {
  auto server = TcpStoreServer::start("127.0.0.1", 0).take_or_throw();
  const std::array<Client, 2> waiters{Client(*server), Client(*server)};
  for (const Client& waiter : waiters) EXPECT_TRUE(waiter.ping());
  refuse_allocation(nth, count);
  for (const Client& waiter : waiters) {
    waiter.send(kWaitForKey);
    static_cast<void>(waiter.ping());
  }
  server->stop(Nanoseconds::zero());
  const bool was_refused = stop_refusing();
  for (const Client& waiter : waiters) EXPECT_TRUE(waiter.is_told()) << "a client waits for ever";
  return was_refused;
}

void refuse_each(bool (*job)(std::int64_t nth, std::int64_t count)) {
  for (const std::int64_t count : {1, 2, 4}) {
    for (std::int64_t nth = 1; job(nth, count) && !::testing::Test::HasFailure(); ++nth) {
    }
    EXPECT_FALSE(::testing::Test::HasFailure()) << count << " refused in a row";
  }
}

TEST(RefusedStore, a_waiter_is_told_and_the_store_goes_on) { refuse_each(release_while_refusing); }
TEST(RefusedStore, a_store_that_ends_tells_its_waiters) { refuse_each(stop_while_refusing); }

}  // namespace
}  // namespace qccl::testing
