#include "transport/sim/network.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace qccl::sim {
namespace {

constexpr std::size_t kControlSlots = 64;  // in addition to the slots for data

Nanoseconds transmission(double bytes, double bytes_per_second) {
  if (bytes_per_second <= 0) return Nanoseconds(0);
  return Nanoseconds(static_cast<std::int64_t>(bytes / bytes_per_second * 1e9));
}

}  // namespace

// One rank's end of the network. A slot is the Flight that brought the frame.
class Endpoint final : public Transport {
 public:
  Endpoint(Network& network, int rank)
      : network_(network), rank_(rank), loss_told_(static_cast<std::size_t>(network.world_), false) {}

  Bytes reserve(WorldRank to, std::size_t max_bytes, TrafficClass traffic) override {
    const int peer = to.value();
    const bool has_ended = network_.ended_[network_.link(rank_, peer)] || network_.ended_[network_.link(peer, rank_)];
    if (!network_.running(rank_) || has_ended) return {};
    const std::size_t slots = network_.options_.slots + (traffic == TrafficClass::control ? kControlSlots : 0);
    if (network_.in_flight_[network_.link(rank_, peer)] >= slots) return {};
    target_ = peer;
    traffic_ = traffic;
    auto& buffer = network_.outgoing_;
    if (buffer.size() < max_bytes) buffer.resize(max_bytes);
    return {buffer.data(), max_bytes};
  }

  void commit(std::size_t actual_bytes) override {
    if (actual_bytes == 0) return;
    network_.send(rank_, target_, {network_.outgoing_.data(), actual_bytes}, traffic_);
  }

  std::optional<ReceivedFrame> receive() override {
    if (!network_.running(rank_)) return std::nullopt;
    network_.settle_due();
    auto& arrived = network_.ranks_[Network::index(rank_)].arrived;
    if (arrived.empty()) return std::nullopt;
    Network::Flight* const flight = arrived.front();
    arrived.pop_front();
    std::erase(network_.ranks_[Network::index(rank_)].coming, flight);
    network_.work(rank_, network_.frame_work(flight->from, rank_, flight->size));
    const std::uint32_t before = network_.in_flight_[network_.link(flight->from, rank_)]--;
    if (before == network_.options_.slots) network_.wake(flight->from);
    ++network_.held_frames_[Network::index(rank_)];
    if (network_.ended_[network_.link(rank_, flight->from)]) {
      release({WorldRank(flight->from), {}, flight});
      return receive();
    }
    const ConstBytes bytes = network_.is_kept(*flight) ? ConstBytes(flight->bytes) : unkept(*flight);
    if (flight->placed == nullptr) return ReceivedFrame{WorldRank(flight->from), bytes, flight};
    const ConstBytes payload = bytes.subspan(kFrameHeaderBytes);
    std::memcpy(flight->placed, payload.data(), payload.size());
    ++network_.placed_frames_;
    return ReceivedFrame{
        WorldRank(flight->from), bytes.first(kFrameHeaderBytes), flight, {flight->placed, payload.size()}};
  }

  void release(const ReceivedFrame& frame) override {
    network_.unused_.push_back(static_cast<Network::Flight*>(frame.slot));
    --network_.held_frames_[Network::index(rank_)];
  }

  void set_placement(PayloadPlacement* placement) override { placement_ = placement; }

  void withdraw() override {
    for (Network::Flight* const flight : network_.ranks_[Network::index(rank_)].coming) flight->placed = nullptr;
  }

  bool progress() override {
    if (placement_ == nullptr || !network_.running(rank_)) return false;
    network_.settle_due();
    for (Network::Flight* const flight : network_.ranks_[Network::index(rank_)].coming) place(*flight);
    return false;
  }

  std::optional<PeerLoss> next_loss() override {
    if (network_.ends_[Network::index(rank_)] == losses_told_ || !network_.running(rank_)) return std::nullopt;
    for (int peer = 0; peer < network_.world_; ++peer) {
      const auto at = Network::index(peer);
      const std::size_t link = network_.link(peer, rank_);
      if (!network_.ended_[link] || loss_told_[at] || network_.in_flight_[link] > 0) continue;
      loss_told_[at] = true;
      ++losses_told_;
      if (network_.ended_[network_.link(rank_, peer)]) continue;
      return PeerLoss{WorldRank(peer), "closed the connection (end of file)"};
    }
    return std::nullopt;
  }

  void disconnect(WorldRank peer) override { network_.end_connection(rank_, peer.value()); }
  void sleep(TimePoint, const Clock&) override {}
  void wake() override {}
  bool is_local(WorldRank) const override { return false; }
  const char* kind(WorldRank) const override { return "sim"; }
  bool flushed() const override { return true; }
  void close() override {}

 private:
  void place(Network::Flight& flight) {
    constexpr std::byte kGarbage{0xA5};
    const bool is_left_out = std::exchange(flight.was_asked_for, true) || ++asked_for_ % 3 == 0;
    if (is_left_out || flight.size <= kFrameHeaderBytes) return;
    flight.placed = placement_->place(WorldRank(flight.from), ConstBytes(flight.bytes).first(kFrameHeaderBytes));
    if (flight.placed != nullptr)
      std::memset(flight.placed, static_cast<int>(kGarbage), flight.size - kFrameHeaderBytes);
  }

  // The bytes of a frame whose payload is not kept: its header stays valid until the next frame is received.
  ConstBytes unkept(const Network::Flight& flight) {
    std::memcpy(network_.blank_.data(), flight.bytes.data(), flight.bytes.size());
    return {network_.blank_.data(), flight.size};
  }

  Network& network_;
  const int rank_;
  int target_ = -1;
  TrafficClass traffic_ = TrafficClass::data;
  PayloadPlacement* placement_ = nullptr;
  std::uint64_t asked_for_ = 0;
  std::vector<bool> loss_told_;
  int losses_told_ = 0;
};

Network::Network(int world, std::uint64_t seed, LinkOptions options)
    : world_(world),
      options_(std::move(options)),
      random_(seed),
      ranks_(index(world)),
      in_flight_(index(world) * index(world)),
      last_landing_(index(world) * index(world)),
      dead_(index(world), false),
      stopped_(index(world), false),
      ended_(index(world) * index(world), false),
      ends_(index(world)),
      held_frames_(index(world)),
      blank_(options_.size_only ? kMaxFrameBytes : 0) {
  lay_pipes();
  for (int rank = 0; rank < world; ++rank) endpoints_.push_back(std::make_unique<Endpoint>(*this, rank));
}

Network::~Network() = default;

int Network::add_pipe(double bytes_per_second, double burst_bytes) {
  const Nanoseconds burst = transmission(burst_bytes, bytes_per_second);
  pipes_.push_back({bytes_per_second, burst, TimePoint{} - burst});
  return static_cast<int>(pipes_.size()) - 1;
}

void Network::lay_pipes() {
  int hosts = 0;
  for (int rank = 0; rank < world_; ++rank) {
    ranks_[index(rank)].host = options_.hosts.empty() ? rank : options_.hosts[index(rank)];
    hosts = std::max(hosts, ranks_[index(rank)].host + 1);
    local_.push_back(add_pipe(options_.local_bytes_per_second));
  }
  for (int host = 0; host < hosts; ++host) {
    host_out_.push_back(add_pipe(options_.bytes_per_second, options_.burst_bytes));
    host_in_.push_back(add_pipe(options_.ingress_bytes_per_second, options_.burst_bytes));
  }
  const int racks = options_.hosts_per_rack > 0 ? (hosts - 1) / options_.hosts_per_rack + 1 : 0;
  for (int rack = 0; rack < racks; ++rack) {
    rack_up_.push_back(add_pipe(options_.rack_bytes_per_second));
    rack_down_.push_back(add_pipe(options_.rack_bytes_per_second));
  }
  for (const auto& [rank, rate] : options_.slow_ranks) ranks_[index(rank)].slow_pipe = add_pipe(rate);
}

// The last pipe comes first, since pipes are taken off the end.
Network::Route Network::route(int from, int to) const {
  const Rank& source = ranks_[index(from)];
  const Rank& target = ranks_[index(to)];
  const bool local = is_local(from, to);
  Route route;
  if (target.slow_pipe >= 0) route.add(target.slow_pipe);
  if (!local) {
    route.add(host_in_[index(target.host)]);
    const int per_rack = options_.hosts_per_rack;
    if (per_rack > 0 && source.host / per_rack != target.host / per_rack) {
      route.add(rack_down_[index(target.host / per_rack)]);
      route.add(rack_up_[index(source.host / per_rack)]);
    }
  }
  route.crossing = route.count;
  route.add(local ? local_[index(from)] : host_out_[index(source.host)]);
  if (source.slow_pipe >= 0) route.add(source.slow_pipe);
  return route;
}

Transport& Network::endpoint(int rank) { return *endpoints_[index(rank)]; }

void Network::kill(int rank) {
  dead_[index(rank)] = true;
  for (int peer = 0; peer < world_; ++peer) end_connection(rank, peer);
}

void Network::end_connection(int rank, int peer) {
  const std::size_t ended = link(rank, peer);
  if (!ended_[ended]) ++ends_[index(peer)];
  ended_[ended] = true;
  wake(peer);
}

std::size_t Network::places_in_use(int rank) const {
  const auto& coming = ranks_[index(rank)].coming;
  return static_cast<std::size_t>(
      std::count_if(coming.begin(), coming.end(), [](const Flight* flight) { return flight->placed != nullptr; }));
}

void Network::stop(int rank) { stopped_[index(rank)] = true; }

void Network::go_on(int rank) {
  stopped_[index(rank)] = false;
  wake(rank);
}

bool Network::running(int rank) const { return !dead_[index(rank)] && !stopped_[index(rank)]; }

void Network::wake(int rank) {
  if (ranks_[index(rank)].is_woken) return;
  ranks_[index(rank)].is_woken = true;
  woken_.push_back(rank);
}

std::vector<int> Network::take_woken() {
  for (const int rank : woken_) ranks_[index(rank)].is_woken = false;
  std::sort(woken_.begin(), woken_.end());
  return std::exchange(woken_, {});
}

Network::Flight& Network::make_flight(int from, int to, ConstBytes frame, TrafficClass traffic) {
  if (unused_.empty()) unused_.push_back(&flights_.emplace_back());
  Flight& flight = *unused_.back();
  unused_.pop_back();
  flight.from = from;
  flight.to = to;
  flight.size = frame.size();
  const bool keeps_all = !options_.size_only || traffic == TrafficClass::control;
  const ConstBytes kept = keeps_all ? frame : frame.first(std::min(frame.size(), kFrameHeaderBytes));
  flight.bytes.assign(kept.begin(), kept.end());
  flight.route = route(from, to);
  flight.has_left = false;
  flight.has_landed = false;
  flight.was_asked_for = false;
  flight.placed = nullptr;
  return flight;
}

Nanoseconds Network::frame_work(int from, int to, std::size_t bytes) const {
  const FrameWork& work = is_local(from, to) ? options_.local_work : options_.wire_work;
  return work.each + transmission(static_cast<double>(bytes), work.bytes_per_second);
}

void Network::work(int rank, Nanoseconds time) {
  if (time.count() > 0) ranks_[index(rank)].busy_until = free_at(rank) + time;
}

Account Network::account(int rank) const {
  const Rank& self = ranks_[index(rank)];
  Account account = self.account;
  const Nanoseconds since = free_at(rank) - self.last_arrival;
  const Nanoseconds working = std::min(since, free_at(rank) - clock_.now());
  account.working += working;
  account.waiting += since - working;
  return account;
}

void Network::send(int from, int to, ConstBytes frame, TrafficClass traffic) {
  work(from, frame_work(from, to, frame.size()));
  Flight& flight = make_flight(from, to, frame, traffic);
  if (tap_) tap_(from, to, flight.bytes);
  flight.account = account(from);
  ++in_flight_[link(from, to)];
  ++frames_;
  if (!is_local(from, to)) wire_bytes_ += frame.size();
  if (free_at(from) > clock_.now()) return schedule(free_at(from), flight);
  leave(flight, clock_.now());
}

void Network::leave(Flight& flight, TimePoint now) {
  flight.has_left = true;
  flight.passed = now;
  pass(flight, now);
}

void Network::pass(Flight& flight, TimePoint now) {
  Route& route = flight.route;
  const bool is_at_source = route.count > route.crossing;
  Pipe& pipe = pipes_[index(route.pipes[--route.count])];
  TimePoint begin = std::max(now, pipe.free);
  pipe.free =
      std::max(now - pipe.burst, pipe.free) + transmission(static_cast<double>(flight.size), pipe.bytes_per_second);
  flight.passed = std::max(flight.passed, pipe.free);
  (is_at_source ? flight.account.wire : flight.account.waiting) += begin - now;
  if (is_at_source && route.count == route.crossing) {
    const Nanoseconds travel = is_local(flight.from, flight.to) ? options_.local_latency : options_.latency;
    flight.account.latency += travel;
    flight.passed += travel;
    begin += travel;
  }
  if (route.count > 0) return schedule(begin, flight);
  land(flight, begin);
}

// By `begun` every pipe has begun to pass the frame.
void Network::land(Flight& flight, TimePoint begun) {
  TimePoint arrival = flight.passed;
  if (options_.jitter.count() > 0) {
    arrival +=
        Nanoseconds(static_cast<std::int64_t>(random_() % (static_cast<std::uint64_t>(options_.jitter.count()) + 1)));
  }
  TimePoint& last = last_landing_[link(flight.from, flight.to)];
  arrival = std::max(arrival, last);
  const Nanoseconds past_tick = arrival.time_since_epoch() % options_.tick;
  if (past_tick.count() > 0) arrival += options_.tick - past_tick;
  last = arrival;
  flight.account.wire += arrival - begun;
  flight.has_landed = true;
  if (!options_.size_only) ranks_[index(flight.to)].coming.push_back(&flight);
  schedule(arrival, flight);
}

void Network::schedule(TimePoint time, Flight& flight) {
  events_.push_back({time, next_order_++, &flight});
  std::push_heap(events_.begin(), events_.end(), std::greater<>());
}

Network::Event Network::pop() {
  std::pop_heap(events_.begin(), events_.end(), std::greater<>());
  const Event event = events_.back();
  events_.pop_back();
  return event;
}

void Network::handle(const Event& event) {
  Flight& flight = *event.flight;
  if (!flight.has_left) return leave(flight, event.time);
  if (!flight.has_landed) return pass(flight, event.time);
  Rank& target = ranks_[index(flight.to)];
  target.account = flight.account;
  target.last_arrival = event.time;
  wake(flight.to);
  target.arrived.push_back(&flight);
}

void Network::settle_due() {
  while (!events_.empty() && events_.front().time <= clock_.now()) handle(pop());
}

TimePoint Network::next_arrival(TimePoint until) {
  while (!events_.empty() && events_.front().time <= until) {
    const Event& next = events_.front();
    if (next.flight->has_landed && running(next.flight->to)) return next.time;
    handle(pop());
  }
  return kForever;
}

bool Network::advance() {
  const TimePoint next = next_arrival();
  if (next == kForever) return false;
  clock_.advance_to(next);
  settle_due();
  return true;
}

}  // namespace qccl::sim
