// A simulated network in memory with its own clock: runs whole collectives of many ranks in one thread, repeatable from
// a seed. See flights.h for the way of a frame.
//
// A rank's processor does one thing at a time: frames cost it time at both ends, work() costs it more, and a frame
// leaves once the processor has reached it. A rank may act only when its processor is free (sim/simulated_job.h).
// Faults: kill a rank, stop a rank, corrupt a frame.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "transport/sim/connections.h"
#include "transport/sim/flights.h"
#include "transport/transport.h"

namespace qccl::sim {

class SimEndpoint;

// Places the payloads of two thirds of the frames whose first byte has arrived, where the receiver has a destination.
// That memory holds garbage until the frame is received.
class SimPlacement {
 public:
  void set(PayloadPlacement* placement) { placement_ = placement; }
  bool is_set() const { return placement_ != nullptr; }
  // Asks for a destination, once for each frame.
  void offer(Flight& flight);
  // The frame as its receiver gets it.
  ReceivedFrame deliver(Flight& flight, ConstBytes bytes);
  std::uint64_t placed_frames() const { return placed_frames_; }

 private:
  PayloadPlacement* placement_ = nullptr;
  std::uint64_t offered_ = 0;
  std::uint64_t placed_frames_ = 0;
};

// A rank's processor, and the delays of its last received frame.
class Processor {
 public:
  explicit Processor(const Clock& clock) : clock_(&clock) {}

  // Adds work; frames that the rank sends from now on wait for it.
  void work(Nanoseconds time) {
    if (time.count() > 0) busy_until_ = free_at() + time;
  }
  // When the processor has finished all its work: now or later.
  TimePoint free_at() const { return std::max(clock_->now(), busy_until_); }

  void set_last_arrival(TimePoint time, const DelayBreakdown& delays) {
    last_arrival_ = time;
    delays_ = delays;
  }
  // Delays count from now on.
  void forget_delays() { set_last_arrival(clock_->now(), {}); }
  // Includes the rank's work and waiting since its last arrival, if it acts as soon as it is free.
  DelayBreakdown delays() const;

 private:
  const Clock* clock_;
  TimePoint busy_until_{};
  TimePoint last_arrival_{};
  DelayBreakdown delays_;
};

// All that goes from one rank to another.
struct Link {
  std::uint32_t in_flight = 0;                 // frames sent but not received
  bool has_ended = false;                      // by the sender
  bool loss_reported = false;                  // to the receiver
  bool is_cut = false;                         // nothing that is sent arrives, nor the end of the connection
  std::unique_ptr<Connections> connections{};  // null: one, without a limit
};

// Ranks to be run, each listed once.
class WakeList {
 public:
  explicit WakeList(int world) : is_listed_(static_cast<std::size_t>(world)) {}
  void add(int rank) {
    if (!is_listed_[static_cast<std::size_t>(rank)]) ranks_.push_back(rank);
    is_listed_[static_cast<std::size_t>(rank)] = true;
  }
  // In ascending order.
  std::vector<int> take();

 private:
  std::vector<int> ranks_;
  std::vector<bool> is_listed_;
};

enum class RankState { running, stopped, dead };

// Owns all endpoints; one thread.
class Network {
 public:
  Network(int world, std::uint64_t seed, NetworkOptions options);

  SimEndpoint& endpoint(int rank) { return *endpoints_[static_cast<std::size_t>(rank)]; }
  Processor& processor(int rank) { return processors_[static_cast<std::size_t>(rank)]; }
  Flights& flights() { return flights_; }
  ManualClock& clock() { return clock_; }

  // The rank is dead from now on: its peers see a loss, and frames it has already sent still arrive.
  void kill(int rank);
  // The rank neither sends nor receives anything until resume(); no peer is notified.
  void stop(int rank);
  void resume(int rank);
  bool running(int rank) const { return states_[static_cast<std::size_t>(rank)] == RankState::running; }

  // Sees, and may corrupt, every frame at the moment it is sent.
  using Tap = std::function<void(int from, int to, Bytes frame)>;
  void set_tap(Tap tap) { tap_ = std::move(tap); }

  // Advances the clock to the next arrival at a running rank; false if nothing is on its way.
  bool advance();
  // The time of that arrival; kForever if none comes by `until`.
  TimePoint next_arrival(TimePoint until = kForever);
  // Ranks with something new since the last call: a frame, a loss, room to send, or a wake().
  std::vector<int> take_woken() { return woken_.take(); }
  void wake(int rank) { woken_.add(rank); }

  // ---- for the endpoints

  int world() const { return static_cast<int>(endpoints_.size()); }
  Link& link(int from, int to) { return links_[static_cast<std::size_t>(from * world() + to)]; }
  void send(int from, int to, ConstBytes frame, TrafficClass traffic);
  // The frame leaves its link; returns its bytes.
  ConstBytes receive(Flight& flight);
  // `rank` ends the connection: the peer sees that after everything sent before.
  void end_connection(int rank, int peer);
  // Handles all events due at the clock's time.
  void handle_due();

 private:
  void handle_next();
  void deliver(Flight& flight, TimePoint time);

  ManualClock clock_;
  Flights flights_;
  std::vector<std::unique_ptr<SimEndpoint>> endpoints_;
  std::vector<Processor> processors_;
  std::vector<RankState> states_;
  std::vector<Link> links_;  // by sender and receiver
  WakeList woken_;
  Tap tap_;
};

struct HeldFrames {
  std::size_t frames = 0;
  std::size_t bytes = 0;
  std::size_t most_bytes = 0;  // so far

  void add(std::size_t size) {
    ++frames;
    bytes += size;
    most_bytes = std::max(most_bytes, bytes);
  }
  void remove(std::size_t size) {
    --frames;
    bytes -= size;
  }
};

// A sender has these in addition to its slots for data.
inline constexpr std::size_t kControlSlots = 64;

// The slot of a received frame is its Flight.
class SimEndpoint final : public BasicTransport {
 public:
  SimEndpoint(Network& network, int rank) : network_(network), rank_(rank) {}

  Reservation reserve(WorldRank to, std::size_t max_bytes, TrafficClass traffic) override {
    const int peer = to.value();
    const Link& link = network_.link(rank_, peer);
    if (!network_.running(rank_) || link.has_ended || network_.link(peer, rank_).has_ended) return {};
    const std::size_t slots =
        network_.flights().options().slots + (traffic == TrafficClass::control ? kControlSlots : 0);
    if (link.in_flight >= slots) return {};
    const bool needs_room = traffic == TrafficClass::data && link.connections != nullptr;
    if (needs_room && !link.connections->has_room()) return {};
    return network_.flights().outgoing(peer, max_bytes, traffic);
  }
  void commit(Reservation&& room, std::size_t bytes, ConstBytes payload) override {
    const Reservation sent = std::move(room);  // the network copies it
    network_.send(rank_, sent.peer().value(), sent.bytes().first(sent.append(bytes, payload)), sent.traffic());
  }
  std::optional<ReceivedFrame> receive() override {
    if (!network_.running(rank_)) return std::nullopt;
    network_.handle_due();
    while (!arrived_.empty()) {
      Flight& flight = *arrived_.front();
      arrived_.pop_front();
      const ConstBytes bytes = network_.receive(flight);
      held_.add(bytes.size());
      if (!network_.link(rank_, flight.from).has_ended) return placement_.deliver(flight, bytes);
      release({WorldRank(flight.from), {}, &flight});
    }
    return std::nullopt;
  }
  void release(const ReceivedFrame& frame) override {
    Flight& flight = *static_cast<Flight*>(frame.slot);
    held_.remove(flight.size);
    network_.flights().recycle(flight);
  }
  void set_placement(PayloadPlacement* placement) override { placement_.set(placement); }
  void withdraw() override {
    for (Flight* const flight : network_.flights().arriving(rank_)) flight->destination = nullptr;
  }
  bool progress() override {
    if (!placement_.is_set() || !network_.running(rank_)) return false;
    network_.handle_due();
    for (Flight* const flight : network_.flights().arriving(rank_)) placement_.offer(*flight);
    return false;
  }
  std::optional<PeerLoss> next_loss() override {
    if (unreported_losses_ == 0 || !network_.running(rank_)) return std::nullopt;
    for (int peer = 0; peer < network_.world(); ++peer) {
      Link& link = network_.link(peer, rank_);
      if (!link.has_ended || link.loss_reported || link.in_flight > 0 || link.is_cut) continue;
      link.loss_reported = true;
      --unreported_losses_;
      if (network_.link(rank_, peer).has_ended) continue;
      return PeerLoss{WorldRank(peer), "closed the connection (end of file)"};
    }
    return std::nullopt;
  }
  void disconnect(WorldRank peer) override { network_.end_connection(rank_, peer.value()); }
  void sleep(TimePoint, const Clock&) override {}
  void wake() override {}
  Nanoseconds round_trip(WorldRank) const override { return 2 * network_.flights().options().latency; }
  bool is_local(WorldRank) const override { return false; }
  const char* kind(WorldRank) const override { return "sim"; }
  bool flushed() const override { return true; }
  void close() override {}

  void arrive(Flight& flight) { arrived_.push_back(&flight); }
  // A peer has ended its connection to this rank.
  void add_loss() { ++unreported_losses_; }

  // Frames received and not released.
  const HeldFrames& held() const { return held_; }
  // Frames received with a placed payload.
  std::uint64_t placed_frames() const { return placement_.placed_frames(); }
  // Payloads on their way here that have a destination.
  std::size_t destinations_in_use() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        network_.flights().arriving(rank_), [](const Flight* flight) { return flight->destination != nullptr; }));
  }

 private:
  Network& network_;
  const int rank_;
  SimPlacement placement_;
  std::deque<Flight*> arrived_;
  HeldFrames held_;
  int unreported_losses_ = 0;
};

}  // namespace qccl::sim
