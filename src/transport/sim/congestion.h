// The congestion control of a simulated TCP connection: how many bytes may be on their way, and at which rate they go.
//
// Two of Linux's, without their rarer rules:
//   cubic   RFC 9438, with the rule for delays of HyStart and, after losses, proportional rate reduction (RFC 6937)
//   bbr     version 1 (Cardwell et al., ACM Queue 2016): startup, drain and the cycle of gains; it never empties the
//           line to measure the round trip, and detects no policers
#pragma once

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <utility>

#include "transport/sim/network_options.h"

namespace qccl::sim {

inline double in_seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

inline constexpr double kSegmentBytes = 1448;  // of payload in an Ethernet frame

// What the acknowledgement of a packet tells. Bytes are those of whole segments: Linux counts segments.
struct Acknowledgement {
  TimePoint now{};
  double bytes = 0;  // acknowledged
  Nanoseconds round_trip{0};
  double rate = 0;             // bytes a second that were delivered while the packet was on its way
  double in_flight = 0;        // bytes that are still on their way
  double most_in_flight = 0;   // the most in this window
  bool begins_round = false;   // the packet was sent after the end of the round before
  bool is_limited = false;     // the sender had less to send than it might, so that `rate` may be too low
  bool fills_window = false;   // in this window, the sender had more to send than it might
  bool is_recovering = false;  // from losses that a later packet showed
};

// What a sender does with its window.
struct Use {
  TimePoint now{};
  double in_flight = 0;
  double most_in_flight = 0;  // of this window, which it filled or not
  bool fills_window = false;
  bool has_losses = false;  // it recovers from them
  Nanoseconds timeout{0};   // the connection's
};

class Congestion {
 public:
  virtual ~Congestion() = default;

  // Bytes that may be on their way.
  double window() const { return window_; }
  // Bytes a second at which packets leave, or would.
  virtual double rate() const = 0;
  // Packets leave at that rate, otherwise as soon as the window permits.
  virtual bool is_paced() const = 0;

  virtual void on_sent(double /*bytes*/) {}
  virtual void on_acknowledgement(const Acknowledgement& news) = 0;
  // The first loss since the last recovery. Acknowledgements until on_recovered() are recovering.
  virtual void on_loss(double in_flight) = 0;
  // All that was lost, before on_loss() or on_timeout(), has arrived.
  virtual void on_recovered() = 0;
  // Nothing was acknowledged for so long that all is taken for lost.
  virtual void on_timeout() = 0;
  // Nothing was on its way since the last packet left, `idle` ago. `timeout`: the connection's.
  virtual void on_start(TimePoint /*now*/, Nanoseconds /*idle*/, Nanoseconds /*timeout*/) {}
  // All has been sent that may be.
  virtual void on_use(const Use& /*use*/) {}

 protected:
  double window_ = 10 * kSegmentBytes;  // RFC 6928
};

class Cubic final : public Congestion {
 public:
  explicit Cubic(Nanoseconds round_trip) : least_round_trip_(round_trip), round_trip_(round_trip) {}

  double rate() const override;
  bool is_paced() const override { return false; }
  void on_sent(double bytes) override { sent_ += bytes; }
  void on_acknowledgement(const Acknowledgement& news) override;
  void on_loss(double in_flight) override;
  void on_recovered() override;
  void on_timeout() override;
  void on_start(TimePoint now, Nanoseconds idle, Nanoseconds timeout) override;
  void on_use(const Use& use) override;

 private:
  bool is_slow_start() const { return window_ < threshold_; }
  void note_round_trip(const Acknowledgement& news);
  bool shows_queue(const Acknowledgement& news);
  bool is_used(bool fills_window, double most_in_flight) const {
    return fills_window || (is_slow_start() && 2 * most_in_flight > window_);
  }
  void reduce(const Acknowledgement& news);
  void grow(const Acknowledgement& news);
  void lower_threshold();

  double threshold_ = std::numeric_limits<double>::infinity();
  double last_most_ = 0;  // the window at the last loss; 0: none since the start or a timeout
  // Since growth along the curve began.
  bool has_epoch_ = false;
  TimePoint epoch_{};
  double origin_ = 0;        // the window at the curve's flat part
  double origin_after_ = 0;  // seconds from the epoch to there
  double reno_window_ = 0;
  // Since the last loss, until recovery from it.
  bool is_reducing_ = false;
  double window_at_loss_ = 0;
  double delivered_ = 0;
  double sent_ = 0;

  Nanoseconds least_round_trip_;
  Nanoseconds round_trip_;  // of the last packet
  Nanoseconds least_of_round_{Nanoseconds::max()};
  int samples_of_round_ = 0;
  TimePoint round_began_{};
  TimePoint last_of_train_{};  // acknowledgement that came close behind the one before
  bool has_left_ = false;      // slow start, since a round trip showed a queue

  TimePoint last_used_{};
  double most_since_ = 0;  // on their way since then
};

class Bbr final : public Congestion {
 public:
  // `phase`: of the cycle's eight, the one that it begins with.
  Bbr(Nanoseconds round_trip, int phase) : round_trip_(round_trip), phase_(phase == 1 ? 2 : phase) {}

  double rate() const override;
  bool is_paced() const override { return true; }
  void on_acknowledgement(const Acknowledgement& news) override;
  void on_loss(double in_flight) override;
  void on_recovered() override {
    window_ = std::max(window_, window_before_);
    conserves_ = false;
  }
  void on_timeout() override;

 private:
  enum class State { startup, drain, cycle };

  double bandwidth() const { return most_.empty() ? 0 : most_.front().second; }
  double bandwidth_delay() const;
  double gain() const;
  void note_rate(const Acknowledgement& news);
  void note_growth(const Acknowledgement& news);
  void advance(const Acknowledgement& news);
  void set_window(const Acknowledgement& news);

  State state_ = State::startup;
  std::deque<std::pair<int, double>> most_;  // (round, bytes a second): the most of ten rounds, falling
  int round_ = 0;
  double best_ = 0;  // bandwidth() when it last grew by a quarter
  int rounds_without_growth_ = 0;
  Nanoseconds round_trip_;  // the least
  int phase_;
  TimePoint phase_began_{};
  bool has_lost_in_phase_ = false;
  bool conserves_ = false;  // for a round after a loss: sends what is delivered
  double window_before_ = 0;
};

// `random`: for what differs from connection to connection.
std::unique_ptr<Congestion> make_congestion(CongestionControl kind, Nanoseconds round_trip, std::uint64_t random);

}  // namespace qccl::sim
