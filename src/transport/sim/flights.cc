#include "transport/sim/flights.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace qccl::sim {

Flights::Flights(int world, std::uint64_t seed, NetworkOptions options)
    : options_(std::move(options)),
      pipes_(world, options_),
      random_(seed),
      last_arrival_(static_cast<std::size_t>(world) * static_cast<std::size_t>(world)),
      arriving_(static_cast<std::size_t>(world)) {
  if (options_.size_only) blank_.resize(kMaxFrameBytes);
  if (options_.has_packets()) packets_ = std::make_unique<Packets>(pipes_, options_, world, seed);
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
  if (packets_ != nullptr && !pipes_.is_local(flight.from, flight.to)) return packets_->write(flight, now);
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

std::optional<Flights::Event> Flights::next(TimePoint until) const {
  const TimePoint packet = packets_ == nullptr ? kForever : packets_->next();
  const TimePoint frame = events_.empty() ? kForever : events_.front().time;
  if (std::min(packet, frame) > until || std::min(packet, frame) == kForever) return std::nullopt;
  return packet < frame ? Event{packet, 0, nullptr} : events_.front();
}

Flight* Flights::step() {
  const TimePoint time = next(kForever)->time;
  if (events_.empty() || events_.front().time > time) {
    for (Flight* const whole : packets_->step()) set_arrival(*whole, time);
    return nullptr;
  }
  std::pop_heap(events_.begin(), events_.end(), std::greater<>());
  Flight& flight = *events_.back().flight;
  events_.pop_back();
  if (flight.has_arrival_time) return &flight;
  flight.has_departed ? pass(flight, time) : depart(flight, time, time);
  return nullptr;
}

}  // namespace qccl::sim
