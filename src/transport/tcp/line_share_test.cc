#include "transport/tcp/line_share.h"

#include <gtest/gtest.h>

namespace qccl::tcp {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kConnections = 7;
constexpr std::uint64_t kPacket = 1448;
constexpr Nanoseconds kRoundTripOfAll = milliseconds(10);

// Connections that receive ten packets each in 10 ms: 101,360 bytes are on their way in a round trip of all.
class Receiver {
 public:
  // `early`: of each hundred packets. Only the first `active` connections receive any.
  void run(Nanoseconds time, std::uint64_t early, std::size_t active = kConnections) {
    for (Nanoseconds left = time; left > Nanoseconds{}; left -= milliseconds(10)) {
      now_ += milliseconds(10);
      for (std::size_t i = 0; i < kConnections; ++i) {
        os::TcpSample& sample = samples_[i];
        sample.round_trip = kRoundTripOfAll;
        if (i < active) {
          sample.received_bytes += 10 * kPacket;
          sample.received_packets += 10;
          hundredths_[i] += 10 * early;
          sample.early_packets = hundredths_[i] / 100;
        }
        share_.sample(i, sample);
      }
      share_.step(now_);
    }
  }
  LineShare& share() { return share_; }

 private:
  LineShare share_{kConnections};
  os::TcpSample samples_[kConnections];
  std::uint64_t hundredths_[kConnections] = {};
  TimePoint now_{std::chrono::seconds(1)};
};

constexpr double kOnTheWay = kConnections * 10 * kPacket;
constexpr Nanoseconds kPeriod = milliseconds(100);

TEST(LineShare, a_line_in_order_has_no_limit) {
  Receiver receiver;
  receiver.run(std::chrono::seconds(10), 0);
  EXPECT_FALSE(receiver.share().limits());
  EXPECT_EQ(receiver.share().window(0), 0);
}

TEST(LineShare, nor_has_one_that_drops_packets_now_and_then) {
  Receiver receiver;
  for (int i = 0; i < 20; ++i) {
    receiver.run((LineShare::kInARow - 2) * kPeriod, 20);
    receiver.run(2 * kPeriod, 0);
  }
  EXPECT_FALSE(receiver.share().limits());
}

TEST(LineShare, one_that_goes_on_has_what_was_on_its_way_shared_by_all) {
  Receiver receiver;
  receiver.run((LineShare::kInARow + 1) * kPeriod, 20);
  ASSERT_TRUE(receiver.share().limits());
  EXPECT_NEAR(receiver.share().limit(), LineShare::kLess * kOnTheWay, 0.15 * kOnTheWay);
  for (std::size_t i = 0; i < kConnections; ++i) {
    EXPECT_NEAR(receiver.share().window(i), receiver.share().limit() / kConnections, 1) << i;
  }
}

TEST(LineShare, the_limit_falls_to_four_packets_a_connection) {
  Receiver receiver;
  receiver.run(std::chrono::seconds(20), 20);
  EXPECT_EQ(receiver.share().window(3), LineShare::kLeastWindow);
}

TEST(LineShare, it_rises_again_and_ends) {
  Receiver receiver;
  receiver.run(std::chrono::seconds(20), 20);
  const double least = receiver.share().limit();
  receiver.run(std::chrono::seconds(5), 0);
  EXPECT_GT(receiver.share().limit(), least);
  receiver.run(std::chrono::seconds(60), 0);
  EXPECT_FALSE(receiver.share().limits());
  EXPECT_EQ(receiver.share().window(0), 0);
}

TEST(LineShare, it_rises_slowly_near_what_was_too_much) {
  Receiver receiver;
  receiver.run((LineShare::kInARow + 1) * kPeriod, 20);
  const double limit = receiver.share().limit();
  receiver.run(10 * kPeriod, 0);
  EXPECT_LT(receiver.share().limit(), limit / LineShare::kLess * 1.05);
}

TEST(LineShare, who_sends_alone_has_all_of_it) {
  Receiver receiver;
  receiver.run((LineShare::kInARow + 1) * kPeriod, 20);
  receiver.run(20 * kPeriod, 0, 1);
  EXPECT_NEAR(receiver.share().window(0), receiver.share().limit(), 1);
  EXPECT_LT(receiver.share().window(1), receiver.share().limit() / 2);
}

TEST(LineShare, it_ends_on_request) {
  Receiver receiver;
  receiver.run(std::chrono::seconds(5), 20);
  receiver.share().lift();
  EXPECT_EQ(receiver.share().window(0), 0);
}

}  // namespace
}  // namespace qccl::tcp
