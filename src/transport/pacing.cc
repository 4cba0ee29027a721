#include "transport/pacing.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

namespace qccl {
namespace {

constexpr std::uint64_t kNanosecondsPerSecond = 1'000'000'000;
constexpr std::uint64_t kSmallestBurstBytes = 64 * 1024;
constexpr Nanoseconds kShortestBurst = std::chrono::milliseconds(1);

struct Unit {
  std::string_view name;
  double bytes;
};
// Only the capital B tells bytes from bits. "mbps" is refused because people read it either way.
constexpr std::array<Unit, 4> kBitUnits{{{"bit", 1.0 / 8}, {"kbit", 1e3 / 8}, {"mbit", 1e6 / 8}, {"gbit", 1e9 / 8}}};
constexpr std::array<Unit, 4> kByteUnits{{{"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}}};

// Bytes per second of one `name`; 0 if there is no such unit.
double unit_bytes(std::string_view name) {
  const bool in_bytes = name.ends_with("Bps") || name.ends_with("B/s");
  if (in_bytes || name.ends_with("/s")) name.remove_suffix(2);
  std::string spelled(name);
  for (char& letter : spelled) {
    if (!in_bytes && letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  const auto& units = in_bytes ? kByteUnits : kBitUnits;
  const auto found = std::ranges::find(units, spelled, &Unit::name);
  return found == units.end() ? 0 : found->bytes;
}

}  // namespace

Result<std::uint64_t> parse_link_rate(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error == std::errc()) {
    const double rate = number * unit_bytes(text.substr(static_cast<std::size_t>(end - text.data())));
    if (rate >= 1 && rate <= 1e15) return static_cast<std::uint64_t>(std::llround(rate));
  }
  return Failure(ErrorKind::invalid_argument,
                 "invalid link rate \"" + std::string(text) +
                     "\": write bits as \"1gbit\", \"2.5gbit\", \"100mbit\" or \"800kbit\", or bytes as \"10MBps\", "
                     "\"1.25GB/s\" or \"500KB/s\"");
}

PacedTransport::PacedTransport(std::unique_ptr<Transport> inner, std::uint64_t bytes_per_second, const Clock& clock)
    : inner_(std::move(inner)),
      bytes_per_second_(bytes_per_second),
      burst_(std::max(kShortestBurst, Nanoseconds(kSmallestBurstBytes * kNanosecondsPerSecond / bytes_per_second))),
      clock_(clock),
      balanced_at_(clock.now() - burst_) {}

Reservation PacedTransport::reserve(WorldRank peer, std::size_t max_bytes, TrafficClass traffic) {
  if (traffic == TrafficClass::data && clock_.now() < balanced_at_) {
    has_refused_ = true;
    return {};
  }
  return inner_->reserve(peer, max_bytes, traffic);
}

void PacedTransport::commit(Reservation&& room, std::size_t bytes, ConstBytes payload) {
  if (room.traffic() == TrafficClass::data) charge(bytes + payload.size());
  inner_->commit(std::move(room), bytes, payload);
}

void PacedTransport::charge(std::size_t bytes) {
  const std::uint64_t cost = bytes * kNanosecondsPerSecond + fraction_;
  fraction_ = cost % bytes_per_second_;
  balanced_at_ =
      std::max(balanced_at_, clock_.now() - burst_) + Nanoseconds(static_cast<std::int64_t>(cost / bytes_per_second_));
}

TimePoint PacedTransport::next_send_time() const { return has_refused_ ? balanced_at_ : kForever; }

// A refused sender retries after the sleep, and is refused again if it still has to wait.
void PacedTransport::sleep(TimePoint deadline, const Clock& clock) {
  inner_->sleep(std::min(deadline, next_send_time()), clock);
  if (clock_.now() >= balanced_at_) has_refused_ = false;
}

}  // namespace qccl
