// A connection over a line of 10 ms each way that is endlessly wide and drops the packets that a test names.
#include "transport/sim/tcp_connection.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "transport/sim/flight.h"

namespace qccl::sim {
namespace {

using std::chrono::milliseconds;

constexpr Nanoseconds kDelay = milliseconds(10);
constexpr std::size_t kSegment = 1448;

class Line {
 public:
  // `dropped`: transmissions, counted from 0.
  explicit Line(std::set<int> dropped, CongestionControl congestion = CongestionControl::cubic)
      : tcp_(make_congestion(congestion, 2 * kDelay, 0), 2 * kDelay, 16 * 1024), dropped_(std::move(dropped)) {}

  // Writes frames of these sizes at time 0. Returns when each has arrived, in milliseconds.
  std::vector<double> arrivals(const std::vector<std::size_t>& sizes) {
    std::vector<Flight> frames(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) tcp_.write(frames[i], sizes[i]);
    pump(TimePoint{});
    std::vector<double> times;
    while (times.size() < sizes.size() && step()) {
      for (const Flight* const frame : complete_) {
        EXPECT_EQ(frame, &frames[times.size()]) << "out of order";
        times.push_back(std::chrono::duration<double, std::milli>(now_ - TimePoint{}).count());
      }
    }
    return times;
  }
  void run_to_the_end() {
    while (step()) continue;
  }

  TcpConnection& tcp() { return tcp_; }
  int sent() const { return sent_; }
  int sent_again() const { return sent_again_; }
  // The first transmission that was one.
  int first_again() const { return first_again_; }

 private:
  struct Event {
    TcpConnection::Packet packet;
    bool is_acknowledgement = false;
  };

  void pump(TimePoint now) {
    while (const auto packet = tcp_.send(now)) {
      if (packet->is_repeated && sent_again_++ == 0) first_again_ = sent_;
      if (!dropped_.contains(sent_++)) events_.emplace(now + kDelay, Event{*packet});
    }
  }
  // Handles the next event; false if there is none.
  bool step() {
    complete_.clear();
    const TimePoint timer = tcp_.next_timer();
    now_ = events_.empty() ? timer : std::min(timer, events_.begin()->first);
    if (now_ == kForever) return false;
    if (now_ == timer) {
      tcp_.on_timer(now_);
    } else {
      const Event event = events_.extract(events_.begin()).mapped();
      if (event.is_acknowledgement) {
        tcp_.acknowledge(event.packet, now_);
      } else {
        complete_ = tcp_.arrive(event.packet);
        events_.emplace(now_ + kDelay, Event{event.packet, true});
      }
    }
    pump(now_);
    return true;
  }

  TcpConnection tcp_;
  const std::set<int> dropped_;
  std::multimap<TimePoint, Event> events_;
  std::vector<Flight*> complete_;
  TimePoint now_{};
  int sent_ = 0;
  int sent_again_ = 0;
  int first_again_ = 0;
};

// Five packets of two segments are a first window.
const std::vector<std::size_t> kFirstWindow(5, 2 * kSegment);

TEST(TcpConnection, a_first_window_arrives_at_once_and_twice_as_much_a_round_trip_later) {
  Line line({});
  const std::vector<std::size_t> sizes(15, 2 * kSegment);
  const std::vector<double> times = line.arrivals(sizes);
  ASSERT_EQ(times.size(), 15u);
  EXPECT_EQ(times[4], 10);
  EXPECT_EQ(times[5], 30);
  EXPECT_EQ(times[14], 30);
  EXPECT_EQ(line.sent_again(), 0);
}

TEST(TcpConnection, a_drop_costs_a_round_trip_and_holds_up_what_was_sent_later) {
  Line line({1});
  EXPECT_EQ(line.arrivals(kFirstWindow), (std::vector<double>{10, 30, 30, 30, 30}));
  EXPECT_EQ(line.sent_again(), 1);
  EXPECT_EQ(line.tcp().timeouts(), 0u);
}

TEST(TcpConnection, a_lost_repetition_costs_another_round_trip) {
  const std::vector<std::size_t> sizes(30, 2 * kSegment);
  Line once({1});
  EXPECT_EQ(once.arrivals(sizes)[1], 30);
  EXPECT_EQ(Line({1, once.first_again()}).arrivals(sizes)[1], 50);
}

// Nothing later tells of it: after two round trips without news the last packet is sent again.
TEST(TcpConnection, a_lost_tail_costs_two_round_trips_more) {
  Line line({4});
  const std::vector<double> times = line.arrivals(kFirstWindow);
  EXPECT_EQ(times[3], 10);
  EXPECT_NEAR(times[4], 20 + 40 + 10, 3);
  EXPECT_EQ(line.tcp().timeouts(), 0u);
  EXPECT_EQ(line.sent_again(), 1);
}

TEST(TcpConnection, a_lost_segment_that_was_alone_costs_a_timeout_and_twice_that_if_it_is_lost_again) {
  Line once({0});
  EXPECT_NEAR(once.arrivals({1000})[0], 20 + 200 + 10, 1);
  EXPECT_EQ(once.tcp().timeouts(), 1u);
  Line twice({0, 1});
  EXPECT_NEAR(twice.arrivals({1000})[0], 3 * (20 + 200) + 10, 1);
  EXPECT_EQ(twice.tcp().timeouts(), 2u);
}

TEST(TcpConnection, after_a_timeout_all_that_did_not_arrive_goes_again_a_segments_window_at_first) {
  Line line({0, 1, 2, 3, 4, 5});  // the first window and its probe
  const std::vector<double> times = line.arrivals(kFirstWindow);
  ASSERT_EQ(times.size(), 5u);
  EXPECT_EQ(line.tcp().timeouts(), 1u);
  EXPECT_GT(times[0], 200);
  EXPECT_GT(times[4], times[0] + 20);
  line.run_to_the_end();
  EXPECT_EQ(line.tcp().in_flight(), 0u);
  EXPECT_EQ(line.sent_again(), 6);
}

TEST(TcpConnection, bbr_spreads_a_window_over_the_round_trip) {
  Line line({}, CongestionControl::bbr);
  const std::vector<double> times = line.arrivals(kFirstWindow);
  EXPECT_EQ(times[0], 10);
  EXPECT_GT(times[4], 14);
  EXPECT_LT(times[4], 30);
}

TEST(TcpConnection, frames_need_not_end_where_packets_do) {
  Line line({2, 4});
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < 200; ++i) sizes.push_back(i * 37 % 5000 + 1);
  EXPECT_EQ(line.arrivals(sizes).size(), 200u);
  line.run_to_the_end();
  EXPECT_EQ(line.tcp().in_flight(), 0u);
}

}  // namespace
}  // namespace qccl::sim
