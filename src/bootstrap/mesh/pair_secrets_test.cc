// Ranks and strangers at a rank of a job with a key, in one thread, over real sockets of this host.
#include "bootstrap/mesh/pair_secrets.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "bootstrap/mesh/connectors.h"
#include "bootstrap/test_support.h"
#include "os/net/socket.h"
#include "secure/tls_pair.h"

namespace qccl::bootstrap {
namespace {

secure::Protection protection(std::string key = "sixteen bytes, or more", bool encrypts = true) {
  return {std::make_shared<secure::Key>(secure::key_of(std::move(key))), encrypts};
}

TEST(PairIdentity, survives_its_text) {
  const PairIdentity identity{0xfedcba9876543210, 1023, 7, 15};
  EXPECT_EQ(encode_identity(identity), "qccl mesh fedcba9876543210 1023 7 15");
  EXPECT_EQ(decode_identity(encode_identity(identity)).take_or_throw(), identity);
}

TEST(PairIdentity, has_only_one_spelling) {
  for (const char* text :
       {"", "qccl mesh", "qccl mesh 1 2 3 4", "qccl mesh 000000000000002a 3 1 00", "qccl mesh 000000000000002a 3 1 0 ",
        "qccl mesh 000000000000002A 3 1 0", "qccl mesh 000000000000002a -3 1 0", "qccl store 000000000000002a 3 1 0",
        "qccl mesh 000000000000002a 3 1", "qccl mesh 000000000000002a 4294967296 1 0"}) {
    EXPECT_FALSE(decode_identity(text).ok()) << text;
  }
}

TEST(PairSecrets, differ_by_job_attempt_ranks_direction_and_connection) {
  const PairSecrets own(protection(), "job/0/1/99");
  const PairIdentity identity{kTestJob, 3, 1, 0};
  const auto secret_of = [](const PairSecrets& secrets, const PairIdentity& of) {
    const secure::Credentials made = secrets.credentials(of);
    return std::vector<std::byte>(made.secret.bytes().begin(), made.secret.bytes().end());
  };
  const auto base = secret_of(own, identity);
  EXPECT_EQ(secret_of(PairSecrets(protection(), "job/0/1/99"), identity), base);
  for (const char* attempt : {"other/0/1/99", "job/1/1/99", "job/0/2/99", "job/0/1/98"}) {
    EXPECT_NE(secret_of(PairSecrets(protection(), attempt), identity), base) << attempt;
  }
  for (const PairIdentity& other : std::vector<PairIdentity>{{kTestJob + 1, 3, 1, 0},
                                                             {kTestJob, 2, 1, 0},
                                                             {kTestJob, 3, 0, 0},
                                                             {kTestJob, 1, 3, 0},
                                                             {kTestJob, 3, 1, 1}}) {
    EXPECT_NE(secret_of(own, other), base) << encode_identity(other);
  }
}

TEST(PairSecrets, are_found_only_for_higher_ranks_that_dial_this_one_in_this_job) {
  const PairSecrets own(protection(), "job/0/1/99");
  EXPECT_TRUE(own.find(encode_identity({kTestJob, 3, 1, 0}), kTestJob, 1).ok());
  expect_failure(own.find(encode_identity({kTestJob + 1, 3, 1, 0}), kTestJob, 1), ErrorKind::misuse, "another job");
  expect_failure(own.find(encode_identity({kTestJob, 3, 2, 0}), kTestJob, 1), ErrorKind::misuse,
                 "is rank 3 and means rank 2");
  expect_failure(own.find(encode_identity({kTestJob, 0, 1, 0}), kTestJob, 1), ErrorKind::misuse,
                 "is rank 0 and means rank 1");
  expect_failure(own.find("anything", kTestJob, 1), ErrorKind::corrupt_data, "no rank's identity");
}

// Rank 1 of a job with a key listens.
class Keyed : public testing::Test {
 protected:
  void SetUp() override {
    allow_many_descriptors();
    Listeners listeners{.tcp = os::listen_tcp("127.0.0.1", 0).take_or_throw()};
    port = os::local_port(listeners.tcp).take_or_throw();
    acceptor.start(std::move(listeners), hello_of(1), {}, &secrets).take_or_throw();
  }

  void turn(Dialler* dialler = nullptr) {
    if (dialler != nullptr) dialler->turn().take_or_throw();
    for (const auto& event : poller.wait(milliseconds(5))) {
      if (owner_of(event.token) == SocketOwner::acceptor) {
        acceptor.ready(index_of(event.token)).take_or_throw();
      } else if (dialler != nullptr) {
        dialler->ready(index_of(event.token), event.writable).take_or_throw();
      }
    }
    for (auto& peer : acceptor.take_peers()) accepted.push_back(std::move(peer));
  }

  // Rank 3 dials with these secrets. True if both ends are connected.
  bool connects(const PairSecrets* of_dialler, std::uint64_t job = kTestJob) {
    wire::Hello own = hello_of(3);
    own.job = job;
    Dialler dialler(poller, time, own, {}, of_dialler);
    dialler.add({.rank = 1, .addresses = {"127.0.0.1"}, .port = port});
    const std::size_t before = accepted.size();
    for (int i = 0; i < 20 && accepted.size() == before; ++i) turn(&dialler);
    if (!dialler.reasons().empty()) reason = dialler.reasons().front();
    return accepted.size() > before && !dialler.take_peers().empty();
  }

  // A process with the right key shows to be one rank in TLS and calls itself another in its Hello.
  bool joins_as(const PairIdentity& shown, const wire::Hello& said) {
    secure::Stream stream(os::connect_tcp("127.0.0.1", port, soon(), kClock).take_or_throw());
    stream.set_tls(secure::Tls::client(stream.get(), secrets.credentials(shown)).take_or_throw());
    for (int i = 0; i < 20; ++i) {
      const auto done = stream.tls()->shake_hands();
      if (!done.ok()) return false;
      if (done.value()) break;
      turn();
    }
    std::array<std::byte, wire::kHelloBytes> bytes, answer;
    wire::encode_hello(said, bytes.data());
    EXPECT_EQ(stream.write_some(bytes).bytes, bytes.size());
    for (int i = 0; i < 20; ++i) {
      turn();
      const os::IoResult io = stream.read_some(answer);
      if (io.lost()) return false;
      if (io.ok()) return true;
    }
    ADD_FAILURE() << "neither answered nor dropped";
    return false;
  }

  ManualClock time;
  os::Poller poller = os::Poller::create().take_or_throw();
  PairSecrets secrets{protection(), "job/0/1/99"};
  Acceptor acceptor{poller, time};
  std::uint16_t port = 0;
  std::vector<PeerSocket> accepted;
  std::string reason;
};

TEST_F(Keyed, a_rank_with_the_key_connects_and_goes_on_encrypted) {
  ASSERT_TRUE(connects(&secrets));
  EXPECT_EQ(accepted.front().rank, 3);
  EXPECT_TRUE(accepted.front().socket.is_encrypted());
}

TEST_F(Keyed, another_key_attempt_or_job_is_refused_with_the_reason_and_the_rank_connects) {
  const PairSecrets other_key(protection("sixteen other bytes"), "job/0/1/99");
  const PairSecrets other_attempt(protection(), "job/0/2/99");
  for (const PairSecrets* wrong : {&other_key, &other_attempt}) {
    EXPECT_FALSE(connects(wrong));
    EXPECT_NE(reason.find("it refused this rank's key"), std::string::npos) << reason;
  }
  EXPECT_FALSE(connects(&secrets, kTestJob + 1));
  EXPECT_NE(reason.find("it refused this rank's key"), std::string::npos) << reason;
  EXPECT_FALSE(connects(nullptr));
  EXPECT_TRUE(connects(&secrets));
}

TEST_F(Keyed, a_rank_cannot_pose_as_another) {
  EXPECT_FALSE(joins_as({kTestJob, 2, 1, 0}, hello_of(3, 1)));
  wire::Hello further = hello_of(3, 1);
  further.wanted_connections = 2;
  further.connection = 1;
  EXPECT_FALSE(joins_as({kTestJob, 3, 1, 0}, further));
  EXPECT_FALSE(joins_as({kTestJob, 3, 2, 0}, hello_of(3, 1)));
  EXPECT_TRUE(accepted.empty());
  EXPECT_TRUE(joins_as({kTestJob, 3, 1, 0}, hello_of(3, 1)));
}

// A stranger that begins a handshake and never goes on.
TEST_F(Keyed, a_thousand_half_open_handshakes_do_not_keep_a_rank_out) {
  std::vector<os::Fd> crowd;
  const std::byte beginnings[] = {secure::Tls::kFirstByte, std::byte{3}, std::byte{1}, std::byte{2}, std::byte{0}};
  for (std::size_t i = 0; i < 1000; ++i) {
    crowd.push_back(os::connect_tcp("127.0.0.1", port, soon(), kClock).take_or_throw());
    if (i % 6 != 0) os::write_some(crowd.back().get(), ConstBytes(beginnings).first(i % 6));
    turn();
  }
  EXPECT_TRUE(connects(&secrets));
  EXPECT_TRUE(os::peer_closed(crowd.front().get()));
}

// The rank's handshake takes round trips; the crowd comes in between.
TEST_F(Keyed, a_crowd_from_one_address_does_not_displace_a_rank_in_its_handshake) {
  const os::Fd rank = connection_from("127.0.0.2", port);
  std::vector<os::Fd> crowd;
  for (std::size_t i = 0; i < Acceptor::kMaxPending + 10; ++i) {
    crowd.push_back(os::connect_tcp("127.0.0.1", port, soon(), kClock).take_or_throw());
    turn();
  }
  EXPECT_TRUE(os::peer_closed(crowd.front().get()));
  EXPECT_FALSE(os::peer_closed(rank.get()));
  EXPECT_EQ(acceptor.next_turn(), time.now() + Acceptor::kHandshakeLimit);
  time.advance(Acceptor::kHandshakeLimit);
  acceptor.expire();
  EXPECT_TRUE(os::peer_closed(rank.get()));
  EXPECT_EQ(acceptor.next_turn(), kForever);
}

}  // namespace
}  // namespace qccl::bootstrap
