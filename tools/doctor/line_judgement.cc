#include "tools/doctor/line_judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace qccl::tools {
namespace {

constexpr std::uint64_t kEnoughPackets = 16;  // sent again, before anything is concluded
constexpr double kDrops = 1e-3;               // of the packets
// A queue is short that holds less than half of what is on the way, and than this: a few peers fill it at once.
constexpr double kShortQueue = 128 * 1024;
// A round trip that grows by less, or by a few packets, is no queue.
constexpr double kJitter = 2e-3;
constexpr double kFewPackets = 12 * 1024;
constexpr double kSlow = 2.0 / 3;  // of the middle host's rate, as QCCL itself counts (docs/lines.md#unequal-lines)
constexpr double kInUse = 0.1;     // of what the host's line carries
constexpr double kLeastUse = 1e5;  // bytes a second

double middle_of(std::vector<double> rates) {
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::ranges::nth_element(rates, middle);
  return *middle;
}

std::string slow_host(int rank, const char* verb, double rate, double middle) {
  return fmt::format(
      "rank {}'s host {} {}, the middle one {}: calls take as long as its line; QCCL gives its ranks "
      "smaller shares (docs/lines.md#unequal-lines)",
      rank, verb, line_rate_text(rate), line_rate_text(middle));
}

}  // namespace

std::string line_rate_text(double bytes_per_second) {
  return bytes_per_second < 1e9 / 8 ? fmt::format("{:.3g} Mbit/s", bytes_per_second * 8e-6)
                                    : fmt::format("{:.3g} Gbit/s", bytes_per_second * 8e-9);
}

std::string judge_queue(const FilledLine& line) {
  const double share =
      static_cast<double>(line.resent_packets) / static_cast<double>(std::max<std::uint64_t>(1, line.sent_packets));
  if (line.resent_packets < kEnoughPackets || share < kDrops) return "";
  const double delay = line.full_round_trip - line.shortest_round_trip;
  const std::string sent_again = fmt::format("{:.2g} % of the packets were sent again", share * 100);
  const double queue = line.rate * delay;
  if (delay < kJitter || queue < kFewPackets)
    return "; " + sent_again + " without a queue: the line loses packets by itself, or its queue is very short";
  if (queue >= std::max(kShortQueue, line.rate * line.shortest_round_trip / 2)) return "";
  return fmt::format("; its queue is short, about {:.3g} KB or {:.2g} ms: {}", queue * 1e-3, delay * 1e3, sent_again);
}

std::vector<std::string> judge_hosts(const std::vector<HostRates>& hosts, const std::vector<int>& ranks) {
  std::vector<std::string> findings;
  std::vector<double> out, in;
  for (const HostRates& host : hosts) {
    out.push_back(host.out);
    in.push_back(host.in);
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const HostRates& host = hosts[i];
    if (host.out > 0 && host.out < kSlow * middle_of(out)) {
      findings.push_back(slow_host(ranks[i], "sends", host.out, middle_of(out)));
    }
    if (host.in > 0 && host.in < kSlow * middle_of(in)) {
      findings.push_back(slow_host(ranks[i], "receives", host.in, middle_of(in)));
    }
    const bool uses_out = host.others_out > std::max(kLeastUse, kInUse * host.out);
    const bool uses_in = host.others_in > std::max(kLeastUse, kInUse * host.in);
    if (!uses_out && !uses_in) continue;
    findings.push_back(
        fmt::format("while the job rested, other programs sent {} from rank {}'s host and received {}: "
                    "calls share its line with them",
                    line_rate_text(host.others_out), ranks[i], line_rate_text(host.others_in)));
  }
  return findings;
}

NetworkBytes parse_network_bytes(const std::string& text) {
  NetworkBytes all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;  // a heading
    std::istringstream name_text(line.substr(0, colon)), values(line.substr(colon + 1));
    std::string name;
    std::uint64_t in = 0, other = 0, out = 0;
    values >> in;
    for (int column = 0; column < 7; ++column) values >> other;
    if (!(name_text >> name) || name == "lo" || !(values >> out)) continue;
    all.in += in;
    all.out += out;
  }
  return all;
}

}  // namespace qccl::tools
