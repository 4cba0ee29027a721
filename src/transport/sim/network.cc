#include "transport/sim/network.h"

#include <algorithm>

namespace qccl::sim {

// One rank's end of the network. Frames are heap buffers; a slot is the buffer itself.
class Endpoint final : public Transport {
 public:
  Endpoint(Network& network, int rank) : network_(network), rank_(rank), loss_told_(network.world_, false) {}

  Bytes reserve(int peer, std::size_t max_bytes, TrafficClass traffic) override {
    if (!network_.running(rank_) || network_.dead_[peer]) return {};
    const std::size_t slots = network_.options_.slots + (traffic == TrafficClass::control ? 64 : 0);
    if (network_.link(rank_, peer).size() >= slots) return {};
    target_ = peer;
    buffer_.resize(max_bytes);
    return buffer_;
  }

  void commit(std::size_t actual_bytes) override {
    if (actual_bytes == 0) return;
    network_.send(rank_, target_, {buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(actual_bytes)});
  }

  std::optional<ReceivedFrame> receive() override {
    if (!network_.running(rank_)) return std::nullopt;
    for (int i = 0; i < network_.world_; ++i) {
      const int peer = (next_peer_ + i) % network_.world_;
      auto& link = network_.link(peer, rank_);
      if (link.empty() || link.front().arrival > network_.clock_.now()) continue;
      auto* bytes = new std::vector<std::byte>(std::move(link.front().bytes));
      link.pop_front();
      next_peer_ = (peer + 1) % network_.world_;
      ++network_.held_frames_[static_cast<std::size_t>(rank_)];
      return ReceivedFrame{peer, *bytes, bytes};
    }
    return std::nullopt;
  }

  void release(const ReceivedFrame& frame) override {
    delete static_cast<std::vector<std::byte>*>(frame.slot);
    --network_.held_frames_[static_cast<std::size_t>(rank_)];
  }

  bool progress() override { return false; }

  std::optional<PeerLoss> next_loss() override {
    if (!network_.running(rank_)) return std::nullopt;
    for (int peer = 0; peer < network_.world_; ++peer) {
      if (!network_.dead_[peer] || loss_told_[peer] || !network_.link(peer, rank_).empty()) continue;
      loss_told_[peer] = true;
      return PeerLoss{peer, "closed the connection (end of file)"};
    }
    return std::nullopt;
  }

  void sleep(TimePoint, const Clock&) override {}
  void wake() override {}
  bool is_local(int) const override { return false; }
  const char* kind(int) const override { return "sim"; }
  bool flushed() const override { return true; }
  void close() override {}

 private:
  Network& network_;
  const int rank_;
  int target_ = -1;
  int next_peer_ = 0;
  std::vector<std::byte> buffer_;
  std::vector<bool> loss_told_;
};

Network::Network(int world, std::uint64_t seed, LinkOptions options)
    : world_(world),
      options_(options),
      random_(seed),
      links_(static_cast<std::size_t>(world) * static_cast<std::size_t>(world)),
      egress_free_(static_cast<std::size_t>(world)),
      dead_(static_cast<std::size_t>(world), false),
      stopped_(static_cast<std::size_t>(world), false),
      held_frames_(static_cast<std::size_t>(world)) {
  for (int rank = 0; rank < world; ++rank) endpoints_.push_back(std::make_unique<Endpoint>(*this, rank));
}

Network::~Network() = default;

Transport& Network::endpoint(int rank) { return *endpoints_[static_cast<std::size_t>(rank)]; }

void Network::kill(int rank) { dead_[static_cast<std::size_t>(rank)] = true; }

void Network::stop(int rank) { stopped_[static_cast<std::size_t>(rank)] = true; }

bool Network::running(int rank) const {
  return !dead_[static_cast<std::size_t>(rank)] && !stopped_[static_cast<std::size_t>(rank)];
}

void Network::send(int from, int to, std::vector<std::byte> bytes) {
  if (tap_) tap_(from, to, bytes);
  const double seconds =
      options_.bytes_per_second > 0 ? static_cast<double>(bytes.size()) / options_.bytes_per_second : 0.0;
  TimePoint& egress = egress_free_[static_cast<std::size_t>(from)];
  egress = std::max(egress, clock_.now()) + Nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  TimePoint arrival = egress + options_.latency;
  if (options_.jitter.count() > 0) {
    arrival +=
        Nanoseconds(static_cast<std::int64_t>(random_() % (static_cast<std::uint64_t>(options_.jitter.count()) + 1)));
  }
  auto& flights = link(from, to);
  if (!flights.empty()) arrival = std::max(arrival, flights.back().arrival);
  flights.push_back({arrival, std::move(bytes)});
}

bool Network::advance() {
  TimePoint next = kForever;
  for (int to = 0; to < world_; ++to) {
    if (!running(to)) continue;
    for (int from = 0; from < world_; ++from) {
      const auto& flights = link(from, to);
      if (!flights.empty()) next = std::min(next, flights.front().arrival);
    }
  }
  if (next == kForever) return false;
  clock_.advance_to(next);
  return true;
}

}  // namespace qccl::sim
