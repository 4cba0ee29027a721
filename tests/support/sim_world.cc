#include "support/sim_world.h"

#include <algorithm>
#include <numeric>

namespace qccl::testing {

SimWorld::SimWorld(int world, SimOptions options) : network_(world, options.seed, options.link) {
  std::vector<int> everyone(static_cast<std::size_t>(world));
  std::iota(everyone.begin(), everyone.end(), 0);
  for (int rank = 0; rank < world; ++rank) {
    engine::EngineOptions engine_options;
    engine_options.rank = rank;
    engine_options.world = world;
    engine_options.slice_bytes = options.slice_bytes;
    engines_.push_back(std::make_unique<engine::Engine>(network_.endpoint(rank), network_.clock(), engine_options));
    engines_.back()->open_group(kSimGroup, "world", everyone).take_or_throw();
  }
}

SimWorld::~SimWorld() = default;

std::shared_ptr<internal::WorkState> SimWorld::post(int rank, const engine::Call& call, const std::byte* input,
                                                    std::byte* output, Nanoseconds timeout, std::uint64_t group) {
  engine::Post post;
  post.group = group;
  post.call = call;
  post.input = input;
  post.output = output;
  post.codec = make_codec(call.compression).take_or_throw();
  post.timeout = timeout;
  post.work = std::make_shared<internal::WorkState>();
  auto work = post.work;
  engine(rank).post(std::move(post));
  return work;
}

bool SimWorld::step() {
  bool moved = false;
  for (int rank = 0; rank < size(); ++rank) {
    if (!network_.running(rank)) continue;
    moved |= engine(rank).progress();
    for (auto& completed : engine(rank).take_completed()) completed.work->complete(std::move(completed.failure));
  }
  if (moved) return true;
  if (network_.advance()) return true;
  TimePoint next = kForever;
  for (int rank = 0; rank < size(); ++rank) {
    if (network_.running(rank)) next = std::min(next, engine(rank).next_timer());
  }
  network_.clock().advance_to(next);
  return true;
}

bool SimWorld::run(const std::vector<std::shared_ptr<internal::WorkState>>& works, Nanoseconds limit) {
  const TimePoint end = network_.clock().now() + limit;
  while (!std::all_of(works.begin(), works.end(), [](const auto& work) { return work->done(); })) {
    if (network_.clock().now() > end) return false;
    step();
  }
  return true;
}

void SimWorld::settle() {
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < size(); ++rank) {
      if (network_.running(rank)) moved |= engine(rank).progress();
    }
    moved |= network_.advance();
  }
}

std::optional<ErrorInfo> SimWorld::collective(const engine::Call& call, std::vector<SimBuffers>& buffers) {
  std::vector<std::shared_ptr<internal::WorkState>> works;
  for (int rank = 0; rank < size(); ++rank) {
    SimBuffers& own = buffers[static_cast<std::size_t>(rank)];
    std::byte* output = own.output.empty() ? own.input.data() : own.output.data();
    works.push_back(post(rank, call, own.input.data(), output));
  }
  if (!run(works)) {
    return ErrorInfo{.kind = ErrorKind::deadline_exceeded, .message = "the simulation did not end: " + call.describe()};
  }
  for (const auto& work : works) {
    if (work->failure()) return work->failure();
  }
  return std::nullopt;
}

engine::Call make_call(Collective collective, std::uint64_t count, DataType type, int world,
                       const CallOptions& options) {
  return comm::make_call(collective, count, type, world, options, {}).take_or_throw();
}

}  // namespace qccl::testing
