#include "transport/sim/tcp_connection.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace qccl::sim {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kSegment = static_cast<std::size_t>(kSegmentBytes);
// Of a packet: its least size, the rate that it takes, and the shortest round trip by which near packets are larger
// (Linux: tcp_min_tso_segs, tcp_tso_autosize(), tcp_tso_rtt_log).
constexpr std::size_t kLeastSegments = 2;
constexpr double kPacketsPerSecond = 1024;
constexpr Nanoseconds kNear = std::chrono::microseconds(512);
constexpr std::int64_t kNearHalvings = 32;
constexpr Nanoseconds kProbeMargin = milliseconds(2);
constexpr int kMostBackoff = 9;

std::size_t segments_of(std::size_t bytes) { return (bytes + kSegment - 1) / kSegment; }
Nanoseconds nanoseconds(double seconds) { return Nanoseconds(static_cast<std::int64_t>(seconds * 1e9)); }

}  // namespace

TcpConnection::TcpConnection(std::unique_ptr<Congestion> congestion, Nanoseconds round_trip,
                             std::size_t most_packet_bytes)
    : congestion_(std::move(congestion)),
      most_packet_bytes_(std::max(kSegment, most_packet_bytes)),
      least_round_trip_(round_trip),
      round_trip_(round_trip),
      variation_(round_trip / 2) {}

// ---- sending

void TcpConnection::write(Flight& frame, std::size_t bytes) {
  written_ += bytes;
  frames_.push_back({&frame, written_});
}

std::optional<TcpConnection::Packet> TcpConnection::send(TimePoint now) {
  is_held_by_window_ = false;
  send_at_ = kForever;
  auto packet = next_packet(now);
  if (!packet) note_use(now);
  return packet;
}

std::optional<TcpConnection::Packet> TcpConnection::next_packet(TimePoint now) {
  const auto lost = next_lost();
  if (!lost && written_ == cut_ && !owes_probe_) {
    if (static_cast<double>(in_flight_) < congestion_->window()) limited_until_ = delivered_ + in_flight_ + 1;
    return std::nullopt;
  }
  if (congestion_->is_paced() && now < next_departure_) {
    send_at_ = next_departure_;
    return std::nullopt;
  }
  if (std::exchange(owes_probe_, false)) {
    if (written_ > cut_) return send_new(std::min<std::uint64_t>(written_ - cut_, most_segments() * kSegment), now);
    return send_again(last_missing(), now);
  }
  if (lost) {
    if (!has_room()) return std::nullopt;
    lost_.pop_front();
    return send_again(*lost, now);
  }
  const std::size_t bytes = next_bytes(now);
  if (bytes == 0) return std::nullopt;
  return send_new(bytes, now);
}

std::uint64_t TcpConnection::last_missing() {
  std::uint64_t number = end_piece() - 1;
  while (is_done(number)) --number;  // the first one is not
  return number;
}

std::optional<std::uint64_t> TcpConnection::next_lost() {
  while (!lost_.empty() && is_done(lost_.front())) lost_.pop_front();
  if (lost_.empty()) return std::nullopt;
  return lost_.front();
}

std::size_t TcpConnection::window_segments() const {
  return std::max<std::size_t>(1, static_cast<std::size_t>(congestion_->window() / kSegmentBytes));
}

std::size_t TcpConnection::most_segments() const {
  double bytes = congestion_->rate() / kPacketsPerSecond;
  const std::int64_t halvings = least_round_trip_ / kNear;
  if (halvings < kNearHalvings)
    bytes += std::ldexp(static_cast<double>(most_packet_bytes_), static_cast<int>(-halvings));
  const auto most = static_cast<double>(most_packet_bytes_);
  const auto whole = static_cast<std::size_t>(std::min(bytes, most)) / kSegment;
  return std::max(kLeastSegments, whole);
}

// Linux sends as much of a lost packet as the window has room for, here all of it.
bool TcpConnection::has_room() {
  is_held_by_window_ = in_flight_ >= window_segments() * kSegment;
  return !is_held_by_window_;
}

// A packet is at most half of the window.
std::size_t TcpConnection::next_bytes(TimePoint now) {
  const std::size_t window = window_segments(), in_flight = in_flight_ / kSegment;
  const std::size_t room = window - std::min(window, in_flight);
  const std::size_t segments = std::min({std::max<std::size_t>(1, window / 2), room, most_segments()});
  const std::size_t bytes = std::min<std::uint64_t>(written_ - cut_, segments * kSegment);
  is_held_by_window_ = bytes == 0 || (bytes > kSegment && is_worth_waiting(room, now));
  return is_held_by_window_ ? 0 : bytes;
}

// For a third of the window or a whole packet, if an acknowledgement is about to come (Linux: tcp_tso_should_defer()).
bool TcpConnection::is_worth_waiting(std::size_t room, TimePoint now) const {
  if (is_recovering_ || is_timed_out_ || in_flight_ == 0 || now > last_sent_ + milliseconds(1)) return false;
  if (room >= most_segments() || 3 * room >= window_segments()) return false;
  return now - transmissions_.front().sent >= round_trip_ / 2;
}

TcpConnection::Packet TcpConnection::send_new(std::size_t bytes, TimePoint now) {
  cut_ += bytes;
  pieces_.push_back({.bytes = bytes, .segment_bytes = segments_of(bytes) * kSegment});
  const std::uint64_t number = end_piece() - 1;
  return {number, transmit(number, now), bytes, false};
}

TcpConnection::Packet TcpConnection::send_again(std::uint64_t number, TimePoint now) {
  const std::size_t bytes = piece(number).bytes;
  return {number, transmit(number, now), bytes, true};
}

std::uint64_t TcpConnection::transmit(std::uint64_t number, TimePoint now) {
  const Piece& sent = piece(number);
  if (in_flight_ == 0) {
    if (last_sent_ > TimePoint{}) congestion_->on_start(now, now - last_sent_, timeout());
    first_sent_ = delivered_at_ = last_progress_ = now;
  }
  transmissions_.push_back({.number = number,
                            .segment_bytes = sent.segment_bytes,
                            .sent = now,
                            .delivered = delivered_,
                            .delivered_at = delivered_at_,
                            .first_sent = first_sent_,
                            .is_limited = limited_until_ > delivered_});
  in_flight_ += sent.segment_bytes;
  last_sent_ = now;
  has_sent_ = true;
  congestion_->on_sent(static_cast<double>(sent.segment_bytes));
  if (congestion_->is_paced()) {
    next_departure_ =
        std::max(next_departure_, now) + nanoseconds(static_cast<double>(sent.bytes) / congestion_->rate());
  }
  return first_transmission_ + transmissions_.size() - 1;
}

// Linux: tcp_cwnd_validate().
void TcpConnection::note_use(TimePoint now) {
  const bool is_full = is_held_by_window_ || in_flight_ >= window_segments() * kSegment;
  if (!std::exchange(has_sent_, false) && !is_full) return;
  if (first_piece_ >= use_end_ || is_full || (!fills_window_ && in_flight_ > most_in_flight_)) {
    fills_window_ = is_full;
    most_in_flight_ = in_flight_;
    use_end_ = end_piece();
  }
  congestion_->on_use({.now = now,
                       .in_flight = static_cast<double>(in_flight_),
                       .most_in_flight = static_cast<double>(most_in_flight_),
                       .fills_window = fills_window_,
                       .has_losses = is_recovering_ || is_timed_out_,
                       .timeout = timeout()});
}

// ---- acknowledgements

void TcpConnection::acknowledge(const Packet& packet, TimePoint now) {
  const bool is_new = !is_done(packet.number);
  if (is_new) piece(packet.number).is_acknowledged = true;
  const std::size_t bytes = is_new ? segments_of(packet.bytes) * kSegment : 0;
  const auto acknowledged = take_off(packet.transmission);
  for (; !pieces_.empty() && pieces_.front().is_acknowledged; ++first_piece_) pieces_.pop_front();
  if (pieces_.empty()) give_up_all();  // only what was sent twice can be on its way
  delivered_ += bytes;
  delivered_at_ = last_progress_ = now;
  backoff_ = 0;
  has_probed_ = owes_probe_ = false;
  if (acknowledged) congestion_->on_acknowledgement(news_of(*acknowledged, bytes, now));
  note_recovery();
}

std::optional<TcpConnection::Transmission> TcpConnection::take_off(std::uint64_t transmission) {
  if (transmission < first_transmission_) return std::nullopt;  // it was given up at a timeout
  bool has_lost = false;
  while (true) {
    const Transmission first = transmissions_.front();
    transmissions_.pop_front();
    in_flight_ -= first.segment_bytes;
    if (first_transmission_++ == transmission) {
      if (has_lost) note_loss();
      return first;
    }
    has_lost = true;
    if (!is_done(first.number)) lost_.push_back(first.number);
  }
}

void TcpConnection::give_up_all() {
  first_transmission_ += transmissions_.size();
  transmissions_.clear();
  in_flight_ = 0;
}

void TcpConnection::note_loss() {
  if (is_recovering_ || is_timed_out_) return;
  is_recovering_ = true;
  recovery_end_ = end_piece();
  congestion_->on_loss(static_cast<double>(in_flight_));
}

Acknowledgement TcpConnection::news_of(const Transmission& acknowledged, std::size_t bytes, TimePoint now) {
  const Nanoseconds interval =
      std::max({now - acknowledged.delivered_at, acknowledged.sent - acknowledged.first_sent, Nanoseconds(1)});
  Acknowledgement news{.now = now,
                       .bytes = static_cast<double>(bytes),
                       .round_trip = now - acknowledged.sent,
                       .rate = static_cast<double>(delivered_ - acknowledged.delivered) / in_seconds(interval),
                       .in_flight = static_cast<double>(in_flight_),
                       .most_in_flight = static_cast<double>(most_in_flight_),
                       .begins_round = acknowledged.delivered >= round_end_,
                       .is_limited = acknowledged.is_limited,
                       .fills_window = fills_window_,
                       .is_recovering = is_recovering_};
  if (news.begins_round) round_end_ = delivered_;
  first_sent_ = acknowledged.sent;
  note_round_trip(news.round_trip);
  return news;
}

void TcpConnection::note_round_trip(Nanoseconds sample) {
  const Nanoseconds error = sample > round_trip_ ? sample - round_trip_ : round_trip_ - sample;
  variation_ = (3 * variation_ + error) / 4;
  round_trip_ = (7 * round_trip_ + sample) / 8;
  least_round_trip_ = std::min(least_round_trip_, sample);
}

void TcpConnection::note_recovery() {
  if (first_piece_ < recovery_end_ || !(is_recovering_ || is_timed_out_)) return;
  is_recovering_ = is_timed_out_ = false;
  congestion_->on_recovered();
}

// ---- timers

TimePoint TcpConnection::timeout_at() const { return last_progress_ + timeout() * (1 << backoff_); }

TimePoint TcpConnection::probe_at() const {
  if (has_probed_ || is_recovering_ || is_timed_out_) return kForever;
  const bool is_alone = in_flight_ <= kSegment;  // its acknowledgement may be delayed
  return std::max(last_sent_, last_progress_) + 2 * round_trip_ + (is_alone ? kLeastTimeout : kProbeMargin);
}

TimePoint TcpConnection::next_timer() const {
  if (in_flight_ == 0) return send_at_;
  return std::min({send_at_, timeout_at(), probe_at()});
}

void TcpConnection::on_timer(TimePoint now) {
  if (in_flight_ == 0) return;
  if (timeout_at() <= now) return time_out();
  if (probe_at() > now) return;
  has_probed_ = owes_probe_ = true;
  last_progress_ = now;
}

void TcpConnection::time_out() {
  ++timeouts_;
  backoff_ = std::min(backoff_ + 1, kMostBackoff);
  give_up_all();
  owes_probe_ = false;
  lost_.clear();
  for (std::uint64_t number = first_piece_; number < end_piece(); ++number) {
    if (!is_done(number)) lost_.push_back(number);
  }
  recovery_end_ = end_piece();
  is_recovering_ = false;
  if (!std::exchange(is_timed_out_, true)) congestion_->on_timeout();
}

// ---- receiving

std::vector<Flight*> TcpConnection::arrive(const Packet& packet) {
  if (packet.number >= first_piece_) piece(packet.number).has_arrived = true;
  for (; next_piece_ < end_piece() && piece(next_piece_).has_arrived; ++next_piece_) {
    received_ += piece(next_piece_).bytes;
  }
  std::vector<Flight*> complete;
  for (; !frames_.empty() && frames_.front().end <= received_; frames_.pop_front()) {
    complete.push_back(frames_.front().frame);
  }
  return complete;
}

}  // namespace qccl::sim
