#include "sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace qccl::sim {
namespace {

constexpr std::uint64_t kGroup = 1;
constexpr Nanoseconds kNever = std::chrono::hours(24 * 365);

LinkOptions size_only(LinkOptions links) {
  links.size_only = true;
  return links;
}

}  // namespace

World::World(WorldOptions options)
    : options_(std::move(options)),
      network_(options_.ranks, options_.seed, size_only(options_.links)),
      ranks_(static_cast<std::size_t>(options_.ranks)) {
  std::vector<int> everyone(ranks_.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  for (const int rank : everyone) {
    engine::EngineOptions own;
    own.rank = rank;
    own.world = options_.ranks;
    own.slice_bytes = options_.slice_bytes;
    own.checksum = false;  // payloads are not there
    own.peer_timeout = kNever;
    own.heartbeat_interval = kNever;  // the dead are seen at once, and nobody stops
    own.hosts = options_.links.hosts;
    auto& at = ranks_[static_cast<std::size_t>(rank)];
    at.engine = std::make_unique<engine::Engine>(network_.endpoint(rank), network_.clock(), std::move(own));
    at.engine->open_group(kGroup, "world", everyone).take_or_throw();
  }
}

World::~World() = default;

void World::post(const engine::Call& call) {
  const std::shared_ptr<const Codec> codec = make_codec(call.compression).take_or_throw();
  for (Rank& rank : ranks_) {
    engine::Post post;
    post.group = kGroup;
    post.call = call;
    post.codec = codec;
    post.timeout = kNever;
    post.size_only = true;
    post.work = std::make_shared<internal::WorkState>();
    rank.work = post.work;
    rank.engine->post(std::move(post));
  }
  running_ = options_.ranks;
}

// Until nothing moves.
void World::progress(int rank) {
  Rank& at = ranks_[static_cast<std::size_t>(rank)];
  while (network_.running(rank) && at.engine->progress()) {
  }
  std::vector<engine::Completed> ended;
  at.engine->take_completed(ended);
  for (auto& completed : ended) {
    completed.work->complete(std::move(completed.failure));
    at.ended = network_.clock().now();
    at.account = network_.account(rank);
    at.account.waiting += at.ended - network_.last_arrival(rank);
    --running_;
  }
}

// To the next arrival or loss; false if there is none.
bool World::go_on() {
  const TimePoint arrival = network_.next_arrival();
  if (losses_.empty() || arrival < losses_.back().first) return network_.advance();
  const auto [time, rank] = losses_.back();
  losses_.pop_back();
  network_.clock().advance_to(time);
  if (!ranks_[static_cast<std::size_t>(rank)].work->done()) --running_;
  network_.kill(rank);
  return true;
}

Result<Outcome> World::run(const engine::Call& call, std::uint64_t max_frames) {
  for (const auto& [rank, after] : options_.losses) losses_.emplace_back(TimePoint{} + after, rank);
  std::sort(losses_.begin(), losses_.end(), std::greater<>());
  post(call);
  for (int rank = 0; rank < options_.ranks; ++rank) progress(rank);
  while (running_ > 0) {
    for (const int rank : network_.take_woken()) progress(rank);
    if (network_.frames() > max_frames) {
      return Failure(ErrorKind::resource_exhausted, fmt::format("more than {} frames", max_frames));
    }
    if (running_ > 0 && !go_on()) {
      return Failure(ErrorKind::deadline_exceeded, fmt::format("{} ranks wait for ever", running_));
    }
  }
  return outcome();
}

Outcome World::outcome() const {
  Outcome outcome;
  outcome.wire_bytes = network_.wire_bytes();
  outcome.frames = network_.frames();
  for (const Rank& rank : ranks_) {
    if (!rank.work->done()) continue;  // it died
    if (rank.work->failure() && outcome.failed_ranks++ == 0) outcome.failure = rank.work->failure()->message;
    const Nanoseconds time = rank.ended.time_since_epoch();
    if (time < outcome.time) continue;
    outcome.time = time;
    outcome.account = rank.account;
  }
  return outcome;
}

}  // namespace qccl::sim
