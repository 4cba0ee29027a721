// Ranks that never come, and strangers on the store's port.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/store/store_protocol.h"
#include "faults/job.h"

namespace qccl::testing {
namespace {

sockaddr_in local_address(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A port that no other process gets: it is bound but not listened at, so that rank 0 can listen at it.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address = local_address(0);
    socklen_t size = sizeof(address);
    const bool bound = ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                       ::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    EXPECT_TRUE(bound);
    number_ = ntohs(address.sin_port);
  }
  ~ReservedPort() { ::close(socket_); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;

  std::uint16_t number() const { return number_; }

 private:
  int socket_;
  std::uint16_t number_ = 0;
};

// Ranks that meet as under a launcher: rank 0 serves at a port.
InitOptions options_at(Rank& rank, std::uint16_t port, Milliseconds patience) {
  InitOptions options = rank.options();
  options.store = nullptr;
  options.master_address = "127.0.0.1";
  options.master_port = port;
  options.init_timeout = patience;
  return options;
}

TEST(Meeting, missing_ranks_are_named_at_the_deadline) {
  const ReservedPort reserved;
  const Time begin = std::chrono::steady_clock::now();
  const Report report = run_ranks({.world = 4}, [port = reserved.number()](Rank& rank) {
    if (rank.rank() % 2 == 1) return;
    const ErrorInfo failure = failure_of(rank, [&] { rank.init(options_at(rank, port, Milliseconds(2'000))); });
    EXPECT_EQ(failure.kind, ErrorKind::deadline_exceeded) << failure.message;
    EXPECT_TRUE(contains(failure.message, "1, 3")) << failure.message;
  });
  ASSERT_TRUE(report.passed);
  for (const std::size_t rank : {0u, 2u}) EXPECT_LT(seconds_to_failure(report, rank, begin), 8.0);
}

TEST(Meeting, an_address_without_a_server_is_named) {
  const ReservedPort reserved;
  run_ranks({.world = 2}, [port = reserved.number()](Rank& rank) {
    if (rank.rank() == 0) return;
    const ErrorInfo failure = failure_of(rank, [&] { rank.init(options_at(rank, port, Milliseconds(2'000))); });
    EXPECT_TRUE(contains(failure.message, "127.0.0.1:" + std::to_string(port))) << failure.message;
  });
}

int connect_when_it_listens(std::uint16_t port) {
  const sockaddr_in address = local_address(port);
  const Time deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < deadline) {
    const int stranger = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(stranger, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return stranger;
    ::close(stranger);
  }
  ADD_FAILURE() << "no process listens at port " << port;
  return -1;
}

// Rank 2 comes late. A thousand strangers connect before it and stay connected; a third of them send something.
TEST(Meeting, strangers_on_the_port_disturb_nothing) {
  const ReservedPort reserved;
  run_ranks({.world = 3, .transport = TransportChoice::tcp}, [port = reserved.number()](Rank& rank) {
    std::vector<int> strangers;
    for (unsigned i = 0; rank.rank() == 2 && i < 1'000 && !::testing::Test::HasFailure(); ++i) {
      strangers.push_back(connect_when_it_listens(port));
      const std::string noise(64, static_cast<char>(i * 2654435761u >> 24));
      if (i % 3 == 0) static_cast<void>(::send(strangers.back(), noise.data(), noise.size(), MSG_NOSIGNAL));
    }
    Communicator comm = rank.init(options_at(rank, port, Milliseconds(30'000)));
    std::vector<float> values(100'000, 1.0f);
    comm.all_reduce(values);
    EXPECT_EQ(values.back(), 3.0f);
    comm.barrier();
    for (const int stranger : strangers) ::close(stranger);
  });
}

void send_all(int stranger, const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const auto now = ::send(stranger, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now <= 0) return;  // the server has dropped the connection, as it may
    sent += static_cast<std::size_t>(now);
  }
}

std::string introduced(std::initializer_list<bootstrap::StoreRequest> requests) {
  std::string bytes =
      bootstrap::encode_request({.query = bootstrap::Query::validate, .number = bootstrap::kStoreMagic});
  for (const auto& request : requests) bytes += bootstrap::encode_request(request);
  return bytes;
}

// Blocks until the server has handled the stranger: it has answered or dropped the connection.
void await_answer(int stranger) {
  char answer;
  static_cast<void>(::recv(stranger, &answer, 1, 0));
}

const bootstrap::StoreRequest kPing{.query = bootstrap::Query::ping};

TEST(Meeting, idle_strangers_that_introduced_themselves_leave_rank_0_its_descriptors) {
  const ReservedPort reserved;
  run_ranks({.world = 3}, [port = reserved.number()](Rank& rank) {
    if (rank.rank() == 0) {
      const rlimit few{200, 200};
      ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    }
    std::vector<int> strangers;
    for (int i = 0; rank.rank() == 2 && i < 300 && !::testing::Test::HasFailure(); ++i) {
      strangers.push_back(connect_when_it_listens(port));
      send_all(strangers.back(), introduced({kPing}));
      await_answer(strangers.back());
    }
    Communicator comm = rank.init(options_at(rank, port, Milliseconds(30'000)));
    comm.barrier();
    for (const int stranger : strangers) ::close(stranger);
  });
}

TEST(Meeting, an_idle_stranger_does_not_delay_the_start) {
  const ReservedPort reserved;
  run_ranks({.world = 2}, [port = reserved.number()](Rank& rank) {
    int stranger = -1;
    if (rank.rank() == 1) {
      stranger = connect_when_it_listens(port);
      send_all(stranger, introduced({kPing}));
      await_answer(stranger);
    }
    const Time begin = std::chrono::steady_clock::now();
    Communicator comm = rank.init(options_at(rank, port, Milliseconds(30'000)));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
    comm.barrier();
    ::close(stranger);
  });
}

// The stranger knows the port, the job's name and the protocol.
TEST(Meeting, a_stranger_that_writes_into_the_store_neither_fills_it_nor_takes_a_rank) {
  const ReservedPort reserved;
  run_ranks({.world = 2}, [port = reserved.number()](Rank& rank) {
    using bootstrap::Query;
    const std::string job = "/qccl/default/0/";
    const auto say = [&](const bootstrap::StoreRequest& request) {
      const int stranger = connect_when_it_listens(port);
      send_all(stranger, introduced({request, kPing}));
      await_answer(stranger);
      ::close(stranger);
    };
    for (int i = 0; rank.rank() == 1 && i < 70; ++i) {
      say({.query = Query::set, .keys = {"/" + std::to_string(i)}, .value = std::string(1024 * 1024, 'x')});
    }
    if (rank.rank() == 1) {
      say({.query = Query::add, .keys = {job + "generation"}, .number = 5});
      say({.query = Query::set, .keys = {job + "1/open"}, .value = "me"});
      say({.query = Query::set, .keys = {job + "1/card/1"}, .value = "garbage"});
      say({.query = Query::set, .keys = {job + "1/outcome"}, .value = "garbage"});
      say({.query = Query::add, .keys = {job + "1/claim/1"}, .number = 1});
      say({.query = Query::add, .keys = {job + "1/closed"}, .number = 1});
    }
    Communicator comm = rank.init(options_at(rank, port, Milliseconds(30'000)));
    comm.barrier();
  });
}

}  // namespace
}  // namespace qccl::testing
