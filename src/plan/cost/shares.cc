#include "plan/cost/shares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>

namespace qccl::plan {
namespace {

// Other shares must take less than this part of the time of those in use.
constexpr double kWorthwhileShares = 0.95;

// The parts of the whole that one host can own, or all together, if the call may take some time: none if least > most.
struct ShareBounds {
  double least = 0;
  double most = 0;
  bool contain(double share) const { return least <= share && share <= most; }
};

struct LoadedHost {
  double rate = 0;
  double ranks = 0;
  double world = 0;
  double share = 0;  // of the whole, of all its ranks together

  // Of each byte of the call, over its line.
  double bytes() const { return ranks + (world - 2 * ranks) * share; }
  ShareBounds bounds(double seconds) const {
    const double room = seconds * rate - ranks;
    const double more = world - 2 * ranks;  // bytes if it owns everything, less those if nothing
    if (more == 0) return {0, room >= 0 ? 1.0 : -1.0};
    return more > 0 ? ShareBounds{0, std::min(1.0, room / more)} : ShareBounds{std::max(0.0, room / more), 1};
  }
};

// By host, with the shares of its ranks; those without ranks move nothing.
std::vector<LoadedHost> loaded_hosts(const HostLines& lines, std::span<const int> shares) {
  const auto world = static_cast<double>(lines.hosts.size());
  std::vector<LoadedHost> hosts;
  for (const double rate : lines.rates) hosts.push_back({.rate = rate, .world = world});
  double whole = 0;
  for (std::size_t rank = 0; rank < lines.hosts.size(); ++rank) {
    const double share = shares.empty() ? kEqualShare : shares[rank];
    LoadedHost& own = hosts[static_cast<std::size_t>(lines.hosts[rank])];
    own.ranks += 1;
    own.share += share;
    whole += share;
  }
  for (LoadedHost& host : hosts) host.share /= whole;
  return hosts;
}

// What all hosts can own together.
ShareBounds bounds(const std::vector<LoadedHost>& hosts, double seconds) {
  ShareBounds all;
  for (const LoadedHost& host : hosts) {
    if (host.ranks == 0) continue;
    const ShareBounds own = host.bounds(seconds);
    if (own.least > own.most) return {1, 0};
    all.least += own.least;
    all.most += own.most;
  }
  return all;
}

// The shares that take the least time; more than one host, and their rates are known.
std::vector<int> best_shares(const HostLines& lines) {
  const std::vector<LoadedHost> hosts = loaded_hosts(lines, {});
  double low = 0;
  double high = 2 * seconds_per_byte(lines, {});  // more than enough, whatever is rounded
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (bounds(hosts, middle).contain(1) ? high : low) = middle;
  }
  // All hosts go equally far from what they must own to what they can.
  const ShareBounds all = bounds(hosts, high);
  const double way = all.most > all.least ? (1 - all.least) / (all.most - all.least) : 0;
  std::vector<int> shares;
  for (const int index : lines.hosts) {
    const LoadedHost& host = hosts[static_cast<std::size_t>(index)];
    const ShareBounds own = host.bounds(high);
    const double share = own.least + way * (own.most - own.least);
    shares.push_back(static_cast<int>(std::lround(kEqualShare * host.world * share / host.ranks)));
  }
  return shares;
}

bool are_known(const HostLines& lines) {
  return std::ranges::all_of(lines.hosts, [&](int host) {
    const double rate = lines.rates[static_cast<std::size_t>(host)];
    return std::isfinite(rate) && rate > 0;
  });
}

}  // namespace

double seconds_per_byte(const HostLines& lines, std::span<const int> shares) {
  double longest = 0;
  for (const LoadedHost& host : loaded_hosts(lines, shares)) {
    if (host.ranks > 0) longest = std::max(longest, host.bytes() / host.rate);
  }
  return longest;
}

double equivalent_rate(const HostLines& lines, std::span<const int> shares) {
  double most = 0;
  for (const LoadedHost& host : loaded_hosts(lines, {})) {
    if (host.ranks > 0) most = std::max(most, host.bytes());
  }
  return most / seconds_per_byte(lines, shares);
}

std::vector<int> shares_of(const HostLines& lines, const std::vector<int>& in_use) {
  const bool has_several = std::ranges::adjacent_find(lines.hosts, std::not_equal_to<>()) != lines.hosts.end();
  if (!has_several || !are_known(lines)) return {};
  std::vector<int> shares = best_shares(lines);
  if (seconds_per_byte(lines, shares) > kWorthwhileShares * seconds_per_byte(lines, {})) shares.clear();
  const bool is_worthwhile = seconds_per_byte(lines, shares) <= kWorthwhileShares * seconds_per_byte(lines, in_use);
  return is_worthwhile ? shares : in_use;
}

}  // namespace qccl::plan
