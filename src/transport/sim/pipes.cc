#include "transport/sim/pipes.h"

#include <algorithm>

namespace qccl::sim {
namespace {

std::size_t index(int number) { return static_cast<std::size_t>(number); }

// `usual`: of hosts that have no rate of their own.
double rate_of(const NetworkOptions& options, int host, double usual) {
  const auto own = std::ranges::find(options.slow_hosts, host, &std::pair<int, double>::first);
  return own == options.slow_hosts.end() ? usual : own->second;
}

}  // namespace

Nanoseconds transmission_time(double bytes, double bytes_per_second) {
  if (bytes_per_second <= 0) return Nanoseconds(0);
  return Nanoseconds(static_cast<std::int64_t>(bytes / bytes_per_second * 1e9));
}

Nanoseconds latency_between(const NetworkOptions& options, int from, int to) {
  const bool is_near = !options.sites.empty() && options.sites[index(from)] == options.sites[index(to)];
  return is_near ? options.near_latency : options.latency;
}

Pipes::Pipes(int world, const NetworkOptions& options)
    : hosts_per_rack_(options.hosts_per_rack), connections_(options.connections), locations_(index(world)) {
  int hosts = 0;
  for (int rank = 0; rank < world; ++rank) {
    locations_[index(rank)].host = options.hosts.empty() ? rank : options.hosts[index(rank)];
    hosts = std::max(hosts, host_of(rank) + 1);
    local_.push_back(add(options.local_bytes_per_second));
  }
  for (int host = 0; host < hosts; ++host) {
    const double out = rate_of(options, host, options.bytes_per_second);
    const double in = rate_of(options, host, options.ingress_bytes_per_second);
    host_out_.push_back(add(out, options.burst_bytes, options.up_queue_bytes));
    host_in_.push_back(add(in, options.burst_bytes, options.down_queue_bytes));
  }
  const int racks = hosts_per_rack_ > 0 ? (hosts - 1) / hosts_per_rack_ + 1 : 0;
  for (int rack = 0; rack < racks; ++rack) {
    rack_up_.push_back(add(options.rack_bytes_per_second));
    rack_down_.push_back(add(options.rack_bytes_per_second));
  }
  for (const auto& [rank, rate] : options.slow_ranks) locations_[index(rank)].slow_pipe = add(rate);
  if (options.flow_bytes_per_second == 0) return;
  first_flow_ = static_cast<int>(pipes_.size());
  for (int i = 0; i < world * world * connections_; ++i) add(options.flow_bytes_per_second);
}

int Pipes::add(double bytes_per_second, double burst_bytes, std::uint64_t queue_bytes) {
  const Nanoseconds burst = transmission_time(burst_bytes, bytes_per_second);
  pipes_.push_back({bytes_per_second, burst, static_cast<double>(queue_bytes), TimePoint{} - burst});
  return static_cast<int>(pipes_.size()) - 1;
}

// The last pipe comes first, since pipes are taken off the end.
Route Pipes::route(int from, int to, int connection) const {
  const Location& source = locations_[index(from)];
  const Location& target = locations_[index(to)];
  const bool local = is_local(from, to);
  Route route;
  if (target.slow_pipe >= 0) route.add(target.slow_pipe);
  if (!local) {
    route.add(host_in_[index(target.host)]);
    if (hosts_per_rack_ > 0 && source.host / hosts_per_rack_ != target.host / hosts_per_rack_) {
      route.add(rack_down_[index(target.host / hosts_per_rack_)]);
      route.add(rack_up_[index(source.host / hosts_per_rack_)]);
    }
  }
  route.after_latency = route.count;
  route.add(local ? local_[index(from)] : host_out_[index(source.host)]);
  if (!local && first_flow_ >= 0) {
    const int world = static_cast<int>(locations_.size());
    route.add(first_flow_ + (from * world + to) * connections_ + std::max(0, connection));
  }
  if (source.slow_pipe >= 0) route.add(source.slow_pipe);
  return route;
}

Pipes::Passage Pipes::pass(int pipe, std::size_t bytes, TimePoint now) {
  Pipe& next = pipes_[index(pipe)];
  const TimePoint begin = std::max(now, next.free);
  next.free =
      std::max(now - next.burst, next.free) + transmission_time(static_cast<double>(bytes), next.bytes_per_second);
  return {begin, next.free};
}

Nanoseconds Pipes::idle_time(const Route& route, std::size_t bytes) const {
  Nanoseconds time{0};
  for (std::size_t i = 0; i < route.count; ++i) {
    time += transmission_time(static_cast<double>(bytes), pipes_[index(route.pipes[i])].bytes_per_second);
  }
  return time;
}

bool Pipes::has_room(int pipe, std::size_t bytes, TimePoint now) const {
  const Pipe& next = pipes_[index(pipe)];
  if (next.queue_bytes == 0 || next.free <= now) return true;
  const double ahead = std::chrono::duration<double>(next.free - now).count() * next.bytes_per_second;
  return ahead + static_cast<double>(bytes) <= next.queue_bytes;
}

}  // namespace qccl::sim
