#include "transport/sim/congestion.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace qccl::sim {
namespace {

// Cubic's, of RFC 9438.
constexpr double kBeta = 0.7;
constexpr double kCurve = 0.4;  // segments per cubic second
constexpr double kRenoGrowth = 3 * (1 - kBeta) / (1 + kBeta);
// Linux: of a window, the least growth in a round trip before the first loss, and the most.
constexpr double kFirstGrowth = 0.05, kMostGrowth = 0.5;
constexpr double kFirstWindow = 10 * kSegmentBytes;
// Linux's HyStart.
constexpr Nanoseconds kTrainGap = std::chrono::milliseconds(2);
constexpr double kHystartWindow = 16 * kSegmentBytes;
constexpr int kHystartSamples = 8;
// What Linux takes for the rate of a window, by which it cuts packets.
constexpr double kSlowStartRate = 2, kLaterRate = 1.2;

constexpr double kStartupGain = 2.885;  // 2 / ln 2
constexpr std::array<double, 8> kCycle = {1.25, 0.75, 1, 1, 1, 1, 1, 1};
constexpr double kWindowGain = 2;
constexpr int kBandwidthRounds = 10;
constexpr double kLeastBbrWindow = 4 * kSegmentBytes;

}  // namespace

// ---- cubic

double Cubic::rate() const {
  const double gain = window_ < threshold_ / 2 ? kSlowStartRate : kLaterRate;
  return gain * window_ / std::max(1e-6, in_seconds(round_trip_));
}

void Cubic::on_acknowledgement(const Acknowledgement& news) {
  note_round_trip(news);
  if (news.is_recovering) return reduce(news);
  if (is_slow_start()) {
    if (is_used(news.fills_window, news.most_in_flight))
      window_ = std::min(window_ + news.bytes, std::max(threshold_, window_));
  } else if (news.fills_window) {
    grow(news);
  }
}

// Leaves slow start when the line is full.
void Cubic::note_round_trip(const Acknowledgement& news) {
  round_trip_ = news.round_trip;
  least_round_trip_ = std::min(least_round_trip_, news.round_trip);
  if (news.begins_round) {
    least_of_round_ = Nanoseconds::max();
    samples_of_round_ = 0;
    round_began_ = last_of_train_ = news.now;
  }
  if (has_left_ || !is_slow_start() || window_ < kHystartWindow || !shows_queue(news)) return;
  has_left_ = true;
  threshold_ = window_;
}

// The acknowledgements of a window take half of a round trip without a gap, or all come late.
bool Cubic::shows_queue(const Acknowledgement& news) {
  if (news.now - last_of_train_ <= kTrainGap) {
    last_of_train_ = news.now;
    if (news.now - round_began_ > least_round_trip_ / 2) return true;
  }
  least_of_round_ = std::min(least_of_round_, news.round_trip);
  if (samples_of_round_ < kHystartSamples) {
    ++samples_of_round_;
    return false;
  }
  const auto margin =
      std::clamp<Nanoseconds>(least_round_trip_ / 8, std::chrono::milliseconds(4), std::chrono::milliseconds(16));
  return least_of_round_ > least_round_trip_ + margin;
}

// Sends less than is delivered, so that a round trip later the threshold is on its way.
void Cubic::reduce(const Acknowledgement& news) {
  delivered_ += news.bytes;
  double more = 0;
  if (news.in_flight > threshold_) {
    more = std::ceil(delivered_ * threshold_ / window_at_loss_ / kSegmentBytes) * kSegmentBytes - sent_;
  } else {
    more = std::min(threshold_ - news.in_flight, std::max(delivered_ - sent_, news.bytes) + kSegmentBytes);
  }
  window_ = news.in_flight + std::max(more, sent_ == 0 ? kSegmentBytes : 0);
}

void Cubic::grow(const Acknowledgement& news) {
  if (!has_epoch_) {
    has_epoch_ = true;
    epoch_ = news.now;
    origin_ = std::max(window_, last_most_);
    origin_after_ = std::cbrt((origin_ - window_) / kSegmentBytes / kCurve);
    reno_window_ = window_;
  }
  const double time = in_seconds(news.now - epoch_ + least_round_trip_) - origin_after_;
  reno_window_ += kRenoGrowth * kSegmentBytes * news.bytes / window_;
  const double target = std::max(reno_window_, origin_ + kCurve * time * time * time * kSegmentBytes);
  window_ += std::clamp(target / window_ - 1, last_most_ == 0 ? kFirstGrowth : 0, kMostGrowth) * news.bytes;
}

void Cubic::lower_threshold() {
  last_most_ = window_ < last_most_ ? window_ * (1 + kBeta) / 2 : window_;
  threshold_ = std::max(2 * kSegmentBytes, kBeta * window_);
  has_epoch_ = false;
}

void Cubic::on_loss(double /*in_flight*/) {
  is_reducing_ = true;
  window_at_loss_ = window_;
  delivered_ = sent_ = 0;
  lower_threshold();
}

void Cubic::on_recovered() {
  if (std::exchange(is_reducing_, false)) window_ = threshold_;
}

void Cubic::on_timeout() {
  is_reducing_ = false;
  lower_threshold();
  last_most_ = 0;
  has_left_ = false;
  window_ = kSegmentBytes;
}

// Linux: tcp_cwnd_restart(), and cubictcp_cwnd_event(), by which the curve leaves out the time without data.
void Cubic::on_start(TimePoint now, Nanoseconds idle, Nanoseconds timeout) {
  if (has_epoch_) epoch_ += idle;
  if (idle <= timeout) return;
  threshold_ = std::max(threshold_, 0.75 * window_);
  const double least = std::min(kFirstWindow, window_);
  for (Nanoseconds left = idle - timeout; left.count() > 0 && window_ > least; left -= timeout) window_ /= 2;
  window_ = std::max(window_, least);
  last_used_ = now;
  most_since_ = 0;
}

// For a timeout the window was not used: it falls half of the way to what was (Linux: tcp_cwnd_application_limited()).
void Cubic::on_use(const Use& use) {
  const bool is_in_use = is_used(use.fills_window, use.most_in_flight);
  most_since_ = is_in_use ? 0 : std::max(most_since_, use.in_flight);
  if (!is_in_use && use.now < last_used_ + use.timeout) return;
  last_used_ = use.now;
  if (is_in_use) return;
  const double used = std::max(std::exchange(most_since_, 0), kFirstWindow);
  if (used >= window_ || use.has_losses) return;
  threshold_ = std::max(threshold_, 0.75 * window_);
  window_ = (window_ + used) / 2;
}

// ---- BBR

double Bbr::bandwidth_delay() const { return bandwidth() * in_seconds(round_trip_); }

double Bbr::gain() const {
  switch (state_) {
    case State::startup: return kStartupGain;
    case State::drain: return 1 / kStartupGain;
    case State::cycle: break;
  }
  return kCycle[static_cast<std::size_t>(phase_)];
}

double Bbr::rate() const {
  const double known = bandwidth() > 0 ? bandwidth() : window_ / std::max(1e-6, in_seconds(round_trip_));
  return gain() * known;
}

void Bbr::on_acknowledgement(const Acknowledgement& news) {
  if (news.begins_round) {
    ++round_;
    conserves_ = false;
  }
  round_trip_ = std::min(round_trip_, news.round_trip);
  note_rate(news);
  if (state_ == State::startup) note_growth(news);
  advance(news);
  set_window(news);
}

void Bbr::note_rate(const Acknowledgement& news) {
  if (news.is_limited && news.rate < bandwidth()) return;
  while (!most_.empty() && most_.back().second <= news.rate) most_.pop_back();
  most_.emplace_back(round_, news.rate);
  while (most_.front().first <= round_ - kBandwidthRounds) most_.pop_front();
}

// Startup ends when the bandwidth has not grown by a quarter in three rounds.
void Bbr::note_growth(const Acknowledgement& news) {
  if (!news.begins_round || news.is_limited) return;
  if (bandwidth() >= 1.25 * best_) {
    best_ = bandwidth();
    rounds_without_growth_ = 0;
  } else if (++rounds_without_growth_ == 3) {
    state_ = State::drain;
  }
}

void Bbr::advance(const Acknowledgement& news) {
  if (state_ == State::startup) return;
  if (state_ == State::drain) {
    if (news.in_flight > bandwidth_delay()) return;
    state_ = State::cycle;
    phase_began_ = news.now;
    return;
  }
  const bool is_over = news.now - phase_began_ > round_trip_;
  bool ends = is_over;
  if (gain() > 1) {
    ends = is_over && (has_lost_in_phase_ || news.in_flight + news.bytes >= gain() * bandwidth_delay());
  } else if (gain() < 1) {
    ends = is_over || news.in_flight <= bandwidth_delay();
  }
  if (!ends) return;
  phase_ = (phase_ + 1) % static_cast<int>(kCycle.size());
  phase_began_ = news.now;
  has_lost_in_phase_ = false;
}

void Bbr::set_window(const Acknowledgement& news) {
  if (conserves_) {
    window_ = std::max(window_, news.in_flight + news.bytes);
    return;
  }
  const double window_gain = state_ == State::cycle ? kWindowGain : kStartupGain;
  const double packet = std::max(2 * kSegmentBytes, rate() / 1024);  // as TcpConnection cuts them
  const double target = window_gain * bandwidth_delay() + 3 * packet;
  const bool is_full = state_ != State::startup;
  if (is_full) {
    window_ = std::min(window_ + news.bytes, target);
  } else if (window_ < target) {
    window_ += news.bytes;
  }
  window_ = std::max(window_, kLeastBbrWindow);
}

void Bbr::on_loss(double in_flight) {
  has_lost_in_phase_ = true;
  if (!conserves_) window_before_ = window_;
  conserves_ = true;
  window_ = std::max(in_flight, kSegmentBytes);
}

void Bbr::on_timeout() {
  if (!conserves_) window_before_ = window_;
  best_ = 0;
  rounds_without_growth_ = 0;
  window_ = kSegmentBytes;
}

std::unique_ptr<Congestion> make_congestion(CongestionControl kind, Nanoseconds round_trip, std::uint64_t random) {
  if (kind == CongestionControl::cubic) return std::make_unique<Cubic>(round_trip);
  return std::make_unique<Bbr>(round_trip, static_cast<int>(random % kCycle.size()));
}

}  // namespace qccl::sim
