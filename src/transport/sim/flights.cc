#include "transport/sim/flights.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace qccl::sim {
namespace {

std::size_t index(int number) { return static_cast<std::size_t>(number); }

// `usual`: of hosts that have no rate of their own.
double rate_of(const NetworkOptions& options, int host, double usual) {
  const auto own = std::ranges::find(options.slow_hosts, host, &std::pair<int, double>::first);
  return own == options.slow_hosts.end() ? usual : own->second;
}

// Between two hosts.
Nanoseconds latency_between(const NetworkOptions& options, int from, int to) {
  const bool is_near = !options.sites.empty() && options.sites[index(from)] == options.sites[index(to)];
  return is_near ? options.near_latency : options.latency;
}

}  // namespace

Nanoseconds transmission_time(double bytes, double bytes_per_second) {
  if (bytes_per_second <= 0) return Nanoseconds(0);
  return Nanoseconds(static_cast<std::int64_t>(bytes / bytes_per_second * 1e9));
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
    host_out_.push_back(add(rate_of(options, host, options.bytes_per_second), options.burst_bytes));
    host_in_.push_back(add(rate_of(options, host, options.ingress_bytes_per_second), options.burst_bytes));
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

int Pipes::add(double bytes_per_second, double burst_bytes) {
  const Nanoseconds burst = transmission_time(burst_bytes, bytes_per_second);
  pipes_.push_back({bytes_per_second, burst, TimePoint{} - burst});
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

Flights::Flights(int world, std::uint64_t seed, NetworkOptions options)
    : options_(std::move(options)),
      pipes_(world, options_),
      random_(seed),
      last_arrival_(static_cast<std::size_t>(world) * static_cast<std::size_t>(world)),
      arriving_(static_cast<std::size_t>(world)) {
  if (options_.size_only) blank_.resize(kMaxFrameBytes);
}

Reservation Flights::outgoing(int to, std::size_t bytes, TrafficClass traffic) {
  std::vector<std::byte>& memory = outgoing_.take();
  if (memory.size() < bytes) memory.resize(bytes);
  return {*this, WorldRank(to), traffic, Bytes(memory).first(bytes), &memory};
}

void Flights::send_receipt(const Flight& arrived, TimePoint now) {
  Flight& receipt = pool_.take();
  receipt = {.from = arrived.to,
             .to = arrived.from,
             .size = arrived.size,
             .bytes = std::move(receipt.bytes),
             .connection = arrived.connection,
             .is_receipt = true,
             .has_arrival_time = true};
  schedule(now + latency_between(options_, receipt.from, receipt.to), receipt);
}

Flight& Flights::make(int from, int to, ConstBytes frame, TrafficClass traffic, int connection) {
  Flight& flight = pool_.take();
  const bool keeps_all = !options_.size_only || traffic == TrafficClass::control;
  const ConstBytes kept = keeps_all ? frame : frame.first(std::min(frame.size(), kFrameHeaderBytes));
  flight = {.from = from,
            .to = to,
            .size = frame.size(),
            .bytes = std::move(flight.bytes),
            .route = pipes_.route(from, to, connection),
            .connection = connection};
  flight.bytes.assign(kept.begin(), kept.end());
  ++frames_;
  if (!pipes_.is_local(from, to)) wire_bytes_ += frame.size();
  return flight;
}

ConstBytes Flights::bytes(const Flight& flight) {
  if (flight.bytes.size() == flight.size) return flight.bytes;
  std::memcpy(blank_.data(), flight.bytes.data(), flight.bytes.size());
  return {blank_.data(), flight.size};
}

Nanoseconds Flights::processing_time(int from, int to, std::size_t bytes) const {
  const FrameWork& work = pipes_.is_local(from, to) ? options_.local_work : options_.wire_work;
  return work.each + transmission_time(static_cast<double>(bytes), work.bytes_per_second);
}

void Flights::depart(Flight& flight, TimePoint time, TimePoint now) {
  if (time > now) return schedule(time, flight);
  flight.has_departed = true;
  flight.passed = now;
  pass(flight, now);
}

// At time `now` the first byte reaches the flight's next pipe.
void Flights::pass(Flight& flight, TimePoint now) {
  Route& route = flight.route;
  const bool is_at_source = route.count > route.after_latency;
  const auto [begin, end] = pipes_.pass(route.pipes[--route.count], flight.size, now);
  flight.passed = std::max(flight.passed, end);
  (is_at_source ? flight.delays.wire : flight.delays.waiting) += begin - now;
  TimePoint reached = begin;
  if (is_at_source && route.count == route.after_latency) {
    const bool is_local = pipes_.is_local(flight.from, flight.to);
    const Nanoseconds travel = is_local ? options_.local_latency : latency_between(options_, flight.from, flight.to);
    flight.delays.latency += travel;
    flight.passed += travel;
    reached += travel;
  }
  if (route.count > 0) return schedule(reached, flight);
  set_arrival(flight, reached);
}

// By `begun` every pipe has begun to pass the frame.
void Flights::set_arrival(Flight& flight, TimePoint begun) {
  TimePoint arrival = flight.passed;
  if (options_.jitter.count() > 0) {
    arrival +=
        Nanoseconds(static_cast<std::int64_t>(random_() % (static_cast<std::uint64_t>(options_.jitter.count()) + 1)));
  }
  TimePoint& last =
      last_arrival_[static_cast<std::size_t>(flight.from) * arriving_.size() + static_cast<std::size_t>(flight.to)];
  if (options_.connections == 1) arrival = std::max(arrival, last);
  const Nanoseconds past_tick = arrival.time_since_epoch() % options_.tick;
  if (past_tick.count() > 0) arrival += options_.tick - past_tick;
  last = arrival;
  flight.delays.wire += arrival - begun;
  flight.has_arrival_time = true;
  if (!options_.size_only) arriving(flight.to).push_back(&flight);
  schedule(arrival, flight);
}

void Flights::schedule(TimePoint time, Flight& flight) {
  events_.push_back({time, next_order_++, &flight});
  std::push_heap(events_.begin(), events_.end(), std::greater<>());
}

Flight* Flights::step() {
  std::pop_heap(events_.begin(), events_.end(), std::greater<>());
  const Event event = events_.back();
  events_.pop_back();
  Flight& flight = *event.flight;
  if (flight.has_arrival_time) return &flight;
  flight.has_departed ? pass(flight, event.time) : depart(flight, event.time, event.time);
  return nullptr;
}

}  // namespace qccl::sim
