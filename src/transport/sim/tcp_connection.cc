#include "transport/sim/tcp_connection.h"

#include <algorithm>
#include <utility>

namespace qccl::sim {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kSegment = static_cast<std::size_t>(kSegmentBytes);
// Of a packet, and at which rate it takes the packet's size (Linux: tcp_min_tso_segs, tcp_tso_autosize()).
constexpr double kLeastSegments = 2, kMostSegments = 1e6;
constexpr double kPacketsPerSecond = 1024;
constexpr Nanoseconds kLeastTimeout = milliseconds(200);
constexpr Nanoseconds kProbeMargin = milliseconds(2);
constexpr int kMostBackoff = 9;

Nanoseconds nanoseconds(double seconds) { return Nanoseconds(static_cast<std::int64_t>(seconds * 1e9)); }

}  // namespace

TcpConnection::TcpConnection(std::unique_ptr<Congestion> congestion, Nanoseconds round_trip,
                             std::size_t most_packet_bytes)
    : congestion_(std::move(congestion)),
      most_packet_bytes_(std::max(kSegment, most_packet_bytes)),
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
    if (written_ > cut_) return send_new(std::min<std::uint64_t>(written_ - cut_, most_bytes()), now);
    return send_again(last_missing(), now);
  }
  if (lost) {
    if (!may_leave(piece(*lost).bytes)) return std::nullopt;
    lost_.pop_front();
    return send_again(*lost, now);
  }
  const std::size_t bytes = next_bytes();
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

// Whatever the window, a packet may leave if nothing is on its way.
bool TcpConnection::may_leave(std::size_t bytes) {
  is_held_by_window_ = in_flight_ > 0 && static_cast<double>(in_flight_ + bytes) > congestion_->window();
  return !is_held_by_window_;
}

std::size_t TcpConnection::most_bytes() const {
  const double segments = congestion_->rate() / kPacketsPerSecond / kSegmentBytes;
  const auto whole = static_cast<std::size_t>(std::clamp(segments, kLeastSegments, kMostSegments));
  return std::min(most_packet_bytes_, whole * kSegment);
}

// Waits until the window has room for a third of itself or for a whole packet (Linux: tcp_tso_should_defer()).
std::size_t TcpConnection::next_bytes() {
  const std::size_t whole = std::min<std::uint64_t>(written_ - cut_, most_bytes());
  const auto third = static_cast<std::size_t>(congestion_->window() / 3);
  if (!may_leave(std::min(whole, std::max(kSegment, third)))) return 0;
  const double room = congestion_->window() - static_cast<double>(in_flight_);
  const auto segments = static_cast<std::size_t>(std::max(1.0, room / kSegmentBytes));
  return std::min(whole, segments * kSegment);
}

TcpConnection::Packet TcpConnection::send_new(std::size_t bytes, TimePoint now) {
  cut_ += bytes;
  pieces_.push_back({bytes});
  const std::uint64_t number = end_piece() - 1;
  return {number, transmit(number, now), bytes, false};
}

TcpConnection::Packet TcpConnection::send_again(std::uint64_t number, TimePoint now) {
  const std::size_t bytes = piece(number).bytes;
  return {number, transmit(number, now), bytes, true};
}

std::uint64_t TcpConnection::transmit(std::uint64_t number, TimePoint now) {
  const auto bytes = static_cast<double>(piece(number).bytes);
  if (in_flight_ == 0) first_sent_ = delivered_at_ = last_progress_ = now;
  transmissions_.push_back({.number = number,
                            .bytes = piece(number).bytes,
                            .sent = now,
                            .delivered = delivered_,
                            .delivered_at = delivered_at_,
                            .first_sent = first_sent_,
                            .is_limited = limited_until_ > delivered_});
  in_flight_ += piece(number).bytes;
  last_sent_ = now;
  congestion_->on_sent(bytes);
  if (congestion_->is_paced()) {
    next_departure_ = std::max(next_departure_, now) + nanoseconds(bytes / congestion_->rate());
  }
  return first_transmission_ + transmissions_.size() - 1;
}

// ---- acknowledgements

void TcpConnection::acknowledge(const Packet& packet, TimePoint now) {
  const bool is_new = !is_done(packet.number);
  if (is_new) piece(packet.number).is_acknowledged = true;
  const std::size_t bytes = is_new ? packet.bytes : 0;
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
    in_flight_ -= first.bytes;
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
                       .begins_round = acknowledged.delivered >= round_end_,
                       .is_limited = acknowledged.is_limited,
                       .fills_window = is_held_by_window_,
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
}

void TcpConnection::note_recovery() {
  if (first_piece_ < recovery_end_ || !(is_recovering_ || is_timed_out_)) return;
  is_recovering_ = is_timed_out_ = false;
  congestion_->on_recovered();
}

// ---- timers

TimePoint TcpConnection::timeout_at() const {
  return last_progress_ + (round_trip_ + std::max(kLeastTimeout, 4 * variation_)) * (1 << backoff_);
}

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
