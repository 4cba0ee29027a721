#include "sim/simulated_job.h"

#include <algorithm>
#include <utility>

namespace qccl::sim {
namespace {

// More moves than a rank can make at one point in time.
constexpr int kMaxMovesAtOnce = 1'000'000;

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

std::vector<int> machines_of(const SimulatedJobOptions& options) {
  std::vector<int> machines;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const int host = options.links.hosts.empty() ? rank : options.links.hosts[index(rank)];
    machines.push_back(options.cores == 0 ? rank : host / options.hosts_per_machine);
  }
  return machines;
}

}  // namespace

SimulatedJob::SimulatedJob(SimulatedJobOptions options)
    : network_(options.ranks, options.seed, options.links), cores_(std::max(1, options.cores), machines_of(options)) {
  timers_.resize(index(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) {
    engine::EngineOptions own = options.engine;
    own.rank = WorldRank(rank);
    own.world = options.ranks;
    if (!options.slice_bytes_of_rank.empty()) own.slice_bytes = options.slice_bytes_of_rank[index(rank)];
    if (!options.logs.empty()) own.log = options.logs[index(rank)];
    engines_.push_back(std::make_unique<engine::Engine>(network_.endpoint(rank), network_.clock(), std::move(own)));
    note_timer(rank);
  }
}

engine::Engine& SimulatedJob::engine(int rank) {
  network_.wake(rank);
  return *engines_[index(rank)];
}

void SimulatedJob::note_timer(int rank) {
  timers_[index(rank)] = engines_[index(rank)]->next_timer();
  next_timer_ = std::min(next_timer_, timers_[index(rank)]);
}

// Runs the rank's engine until nothing moves.
void SimulatedJob::look_at(int rank) {
  engine::Engine& engine = *engines_[index(rank)];
  int moves = 0;
  while (network_.running(rank) && engine.progress()) {
    if (++moves < kMaxMovesAtOnce) continue;
    is_stuck_ = true;
    return;
  }
  if (!network_.running(rank)) return;
  while (const auto ended = engine.take_ended()) {
    ended->complete();
    if (on_end_) on_end_(rank);
  }
  note_timer(rank);
}

void SimulatedJob::end_look(int rank) {
  const TimePoint free = network_.processor(rank).free_at();
  const auto end = [this, rank] {
    if (const auto next = cores_.end(rank)) network_.wake(*next);
  };
  if (free > now()) {
    at(free, end);
  } else {
    end();
  }
}

bool SimulatedJob::look_at_woken() {
  const std::vector<int> woken = network_.take_woken();
  for (const int rank : woken) {
    if (!cores_.begin(rank)) continue;
    look_at(rank);
    end_look(rank);
  }
  return !woken.empty();
}

void SimulatedJob::wake_due() {
  next_timer_ = kForever;
  for (int rank = 0; rank < size(); ++rank) {
    if (!network_.running(rank)) continue;
    if (timers_[index(rank)] <= now()) {
      network_.wake(rank);
    } else {
      next_timer_ = std::min(next_timer_, timers_[index(rank)]);
    }
  }
}

bool SimulatedJob::advance() {
  const TimePoint event = events_.empty() ? kForever : events_.begin()->first;
  const TimePoint arrival = network_.next_arrival(std::min(event, next_timer_));
  const TimePoint next = std::max(now(), std::min({arrival, event, next_timer_}));
  if (next == kForever) return false;
  if (event <= next) {
    network_.clock().advance_to(next);
    const auto due = events_.extract(events_.begin());
    due.mapped()();
  } else if (arrival <= next) {
    network_.advance();
  } else {
    network_.clock().advance_to(next);
    wake_due();
  }
  return true;
}

bool SimulatedJob::step() {
  if (look_at_woken()) return !is_stuck_;
  return advance();
}

bool SimulatedJob::run_until(const std::function<bool()>& condition, Nanoseconds limit) {
  const TimePoint end = saturating_add(now(), limit);
  while (!condition()) {
    if (now() > end || !step()) return false;
  }
  return true;
}

void SimulatedJob::settle() {
  while (!is_stuck_ && (look_at_woken() || network_.advance())) {
  }
}

}  // namespace qccl::sim
