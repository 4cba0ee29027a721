// How many round trips a rank far from rank 0 needs until it is ready.
#include <gtest/gtest.h>

#include <future>

#include "base/fields.h"
#include "bootstrap/mesh/address_card.h"
#include "bootstrap/protocol/formats.h"
#include "bootstrap/store/tcp_store.h"
#include "os/net/socket.h"
#include "qccl/qccl.h"
#include "threads/counting_relay.h"

namespace qccl::testing {
namespace {

using namespace std::chrono_literals;

// What the store answers to a rank before the outcome of the meeting: two checks, two counters, claim, wait.
constexpr std::size_t kBytesBeforeOutcome = 2 + 8 + 8 + 8 + 1;

// Makes the store's answers name a relay in place of rank 0, so that the rank's connection to it is counted too.
class PutsRelayBeforeRank0 {
 public:
  std::string operator()(std::string_view bytes) {
    if (has_passed_outcome()) return std::string(bytes);
    received_ += bytes;
    const std::size_t passing = std::min(received_.size(), kBytesBeforeOutcome) - passed_;
    std::string passed = received_.substr(passed_, passing);
    passed_ += passing;
    std::uint64_t length = 0;
    const std::string_view rest = std::string_view(received_).substr(passed_);
    if (rest.size() < sizeof(length)) return passed;
    std::memcpy(&length, rest.data(), sizeof(length));
    if (rest.size() != sizeof(length) + length) return passed;
    FieldWriter writer;
    writer.string(with_relay(rest.substr(sizeof(length))), 0);
    return passed + writer.take();
  }

  // What comes later answers a rank that asks the store while it waits for its peers.
  bool has_passed_outcome() const { return relay_ != nullptr; }
  int round_trips() const { return relay_->round_trips(); }

 private:
  std::string with_relay(std::string_view bytes) {
    auto outcome = bootstrap::decode_outcome(bytes).take_or_throw();
    auto record = bootstrap::decode_record(outcome.records[0]).take_or_throw();
    auto card = bootstrap::decode_card(record.card).take_or_throw();
    relay_ = std::make_unique<CountingRelay>(card.port);
    card.port = relay_->port();
    record.card = bootstrap::encode_card(card);
    outcome.records[0] = bootstrap::encode_record(record);
    return bootstrap::encode_outcome(outcome);
  }

  std::string received_;
  std::size_t passed_ = 0;
  std::unique_ptr<CountingRelay> relay_;
};

Communicator start(int rank, std::uint16_t port) {
  InitOptions init;
  init.rank = rank;
  init.world = 2;
  init.master_address = "127.0.0.1";
  init.master_port = port;
  init.job = "start";
  init.init_timeout = 60s;
  init.transport = TransportChoice::tcp;
  return qccl::init(init);
}

TEST(Start, a_rank_is_ready_after_six_round_trips) {
  const SteadyClock clock;
  const os::Fd held = os::reserve_tcp_port().take_or_throw();
  const std::uint16_t port = os::local_port(held).take_or_throw();
  auto rank_0 = std::async(std::launch::async, [&] { return start(0, port); });
  bootstrap::TcpStore observer({.host = "127.0.0.1", .port = port, .deadline = clock.now() + 60s, .clock = &clock});
  ASSERT_TRUE(observer.get("qccl/start/0/1/open", 60s).has_value());

  PutsRelayBeforeRank0 mesh;
  std::atomic<int> round_trips_to_outcome{0};
  CountingRelay store(port, [&](std::string_view bytes) {
    if (!mesh.has_passed_outcome()) round_trips_to_outcome = store.round_trips();
    return mesh(bytes);
  });
  const Communicator rank_1 = start(1, store.port());
  EXPECT_EQ(round_trips_to_outcome, 3) << "connection; introduction and generation; claim and outcome";
  EXPECT_LE(mesh.round_trips(), 3) << "connection, handshake, the opening of the first group";
  EXPECT_EQ(rank_0.get().size(), 2);
}

}  // namespace
}  // namespace qccl::testing
