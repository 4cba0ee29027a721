#include "transport/sim/network.h"

#include <cstring>

namespace qccl::sim {

void SimPlacement::offer(Flight& flight) {
  constexpr std::byte kGarbage{0xA5};
  const bool is_left_out = std::exchange(flight.was_offered, true) || ++offered_ % 3 == 0;
  if (is_left_out || flight.size <= kFrameHeaderBytes) return;
  const ConstBytes header = ConstBytes(flight.bytes).first(kFrameHeaderBytes);
  flight.destination = placement_->find_destination(WorldRank(flight.from), header);
  if (flight.destination == nullptr) return;
  std::memset(flight.destination, static_cast<int>(kGarbage), flight.size - kFrameHeaderBytes);
}

ReceivedFrame SimPlacement::deliver(Flight& flight, ConstBytes bytes) {
  const WorldRank peer(flight.from);
  if (flight.destination == nullptr) return {peer, bytes, &flight};
  const ConstBytes payload = bytes.subspan(kFrameHeaderBytes);
  std::memcpy(flight.destination, payload.data(), payload.size());
  ++placed_frames_;
  return {peer, bytes.first(kFrameHeaderBytes), &flight, {flight.destination, payload.size()}};
}

// ---- processors

DelayBreakdown Processor::delays() const {
  DelayBreakdown delays = delays_;
  const Nanoseconds since = free_at() - last_arrival_;
  const Nanoseconds working = std::min(since, free_at() - clock_->now());
  delays.working += working;
  delays.waiting += since - working;
  return delays;
}

std::vector<int> WakeList::take() {
  for (const int rank : ranks_) is_listed_[static_cast<std::size_t>(rank)] = false;
  std::ranges::sort(ranks_);
  return std::exchange(ranks_, {});
}

// ---- the network

namespace {

// Between ranks of different hosts.
void add_connections(std::vector<Link>& links, const NetworkOptions& options, int world) {
  const auto host_of = [&](int rank) {
    return options.hosts.empty() ? rank : options.hosts[static_cast<std::size_t>(rank)];
  };
  for (int i = 0; i < world * world; ++i) {
    if (host_of(i / world) == host_of(i % world)) continue;
    links[static_cast<std::size_t>(i)].connections =
        std::make_unique<Connections>(options.connections, options.buffer_bytes);
  }
}

}  // namespace

Network::Network(int world, std::uint64_t seed, NetworkOptions options)
    : flights_(world, seed, std::move(options)),
      processors_(static_cast<std::size_t>(world), Processor(clock_)),
      states_(static_cast<std::size_t>(world), RankState::running),
      links_(static_cast<std::size_t>(world) * static_cast<std::size_t>(world)),
      woken_(world) {
  for (int rank = 0; rank < world; ++rank) endpoints_.push_back(std::make_unique<SimEndpoint>(*this, rank));
  if (flights_.options().connections == 1 && flights_.options().buffer_bytes == 0) return;
  add_connections(links_, flights_.options(), world);
}

void Network::kill(int rank) {
  states_[static_cast<std::size_t>(rank)] = RankState::dead;
  for (int peer = 0; peer < world(); ++peer) end_connection(rank, peer);
}

void Network::stop(int rank) {
  if (running(rank)) states_[static_cast<std::size_t>(rank)] = RankState::stopped;
}

void Network::resume(int rank) {
  RankState& state = states_[static_cast<std::size_t>(rank)];
  if (state == RankState::stopped) state = RankState::running;
  wake(rank);
}

void Network::end_connection(int rank, int peer) {
  if (!std::exchange(link(rank, peer).has_ended, true)) endpoint(peer).add_loss();
  wake(peer);
}

void Network::send(int from, int to, ConstBytes frame, TrafficClass traffic) {
  Processor& sender = processor(from);
  sender.work(flights_.processing_time(from, to, frame.size()));
  Connections* const connections = link(from, to).connections.get();
  const bool is_counted = connections != nullptr && traffic == TrafficClass::data;
  Flight& flight = flights_.make(from, to, frame, traffic, is_counted ? connections->put(frame.size()) : -1);
  if (connections != nullptr) flight.number = connections->next_number();
  if (tap_) tap_(from, to, flight.bytes);
  flight.delays = sender.delays();
  ++link(from, to).in_flight;
  if (link(from, to).is_cut) return flights_.recycle(flight);
  flights_.depart(flight, sender.free_at(), clock_.now());
}

ConstBytes Network::receive(Flight& flight) {
  std::erase(flights_.arriving(flight.to), &flight);
  processor(flight.to).work(flights_.processing_time(flight.from, flight.to, flight.size));
  if (link(flight.from, flight.to).in_flight-- == flights_.options().slots) wake(flight.from);
  return flights_.bytes(flight);
}

void Network::handle_next() {
  const TimePoint time = flights_.next(kForever)->time;
  Flight* const arrived = flights_.step();
  if (arrived == nullptr) return;
  if (arrived->is_receipt) {
    link(arrived->to, arrived->from).connections->take_off(arrived->connection, arrived->size);
    wake(arrived->to);
    return flights_.recycle(*arrived);
  }
  if (arrived->connection >= 0) flights_.send_receipt(*arrived, time);
  Connections* const connections = link(arrived->from, arrived->to).connections.get();
  if (connections == nullptr) return deliver(*arrived, time);
  arrived->passed = time;
  for (Flight* const next : connections->in_order(*arrived)) {
    next->delays.wire += time - next->passed;
    deliver(*next, time);
  }
}

void Network::deliver(Flight& flight, TimePoint time) {
  processor(flight.to).set_last_arrival(time, flight.delays);
  wake(flight.to);
  endpoint(flight.to).arrive(flight);
}

void Network::handle_due() {
  while (flights_.next(clock_.now())) handle_next();
}

TimePoint Network::next_arrival(TimePoint until) {
  while (const auto next = flights_.next(until)) {
    if (next->flight != nullptr && next->flight->has_arrival_time && running(next->flight->to)) return next->time;
    handle_next();
  }
  return kForever;
}

bool Network::advance() {
  const TimePoint next = next_arrival();
  if (next == kForever) return false;
  clock_.advance_to(next);
  handle_due();
  return true;
}

}  // namespace qccl::sim
