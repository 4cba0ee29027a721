#include "support/sim_world.h"

#include <algorithm>
#include <numeric>

#include "support/reference.h"

namespace qccl::testing {
namespace {

constexpr int kMaxStepsAtOnce = 1'000'000;

}  // namespace

SimWorld::SimWorld(int world, SimOptions options) : codec_(options.codec), network_(world, options.seed, options.link) {
  for (int rank = 0; rank < world; ++rank) {
    engine::EngineOptions engine_options;
    engine_options.rank = rank;
    engine_options.world = world;
    const auto& slices = options.slice_bytes_of_rank;
    engine_options.slice_bytes = slices.empty() ? options.slice_bytes : slices[static_cast<std::size_t>(rank)];
    engine_options.peer_timeout = options.peer_timeout;
    engine_options.hosts = options.hosts;
    engine_options.seed = options.codec_seed;
    engines_.push_back(std::make_unique<engine::Engine>(network_.endpoint(rank), network_.clock(), engine_options));
  }
  if (!options.open_world_group) return;
  std::vector<int> everyone(static_cast<std::size_t>(world));
  std::iota(everyone.begin(), everyone.end(), 0);
  open_group(kSimGroup, "world", everyone);
}

SimWorld::~SimWorld() = default;

void SimWorld::open_group(std::uint64_t id, const std::string& name, const std::vector<int>& ranks) {
  for (const int rank : ranks) open_group_on(rank, id, name, ranks);
}

void SimWorld::open_group_on(int rank, std::uint64_t id, const std::string& name, const std::vector<int>& ranks) {
  groups_[id] = ranks;
  engine(rank).open_group(id, name, ranks).take_or_throw();
}

SimWork SimWorld::post(int rank, const engine::Call& call, const std::byte* input, std::byte* output,
                       Nanoseconds timeout, std::uint64_t group) {
  engine::Post post;
  post.group = group;
  post.call = call;
  post.input = input;
  post.output = output;
  const std::vector<int>& members = groups_[group];
  post.premul_factor =
      premul_factor_of(static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin()));
  post.codec = make_codec(call.compression).take_or_throw();
  if (post.codec != nullptr && codec_ != nullptr) post.codec = codec_;
  post.timeout = timeout;
  post.work = std::make_shared<internal::WorkState>();
  auto work = post.work;
  engine(rank).post(std::move(post));
  return work;
}

SimWork SimWorld::post_message(int rank, const engine::Message& message, const SimMessage& of) {
  engine::Post post;
  post.group = of.group;
  post.call.count = of.count;
  post.call.type = of.type;
  post.message = message;
  post.input = of.data;
  post.output = of.data;
  post.timeout = of.timeout;
  post.work = std::make_shared<internal::WorkState>();
  auto work = post.work;
  engine(rank).post(std::move(post));
  return work;
}

bool SimWorld::progress_all() {
  bool moved = false;
  for (int rank = 0; rank < size(); ++rank) {
    if (!network_.running(rank)) continue;
    moved |= engine(rank).progress();
    std::vector<engine::Completed> ended;
    engine(rank).take_completed(ended);
    for (auto& completed : ended) completed.work->complete(std::move(completed.failure));
  }
  return moved;
}

void SimWorld::step() {
  if (progress_all() || network_.advance()) return;
  TimePoint next = kForever;
  for (int rank = 0; rank < size(); ++rank) {
    if (network_.running(rank)) next = std::min(next, engine(rank).next_timer());
  }
  network_.clock().advance_to(next);
}

bool SimWorld::run_until(const std::function<bool()>& condition, Nanoseconds limit) {
  const TimePoint end = now() + limit;
  TimePoint last{};
  int steps_at_once = 0;  // without time going on: an engine that moves for ever gets nowhere
  while (!condition()) {
    steps_at_once = now() == last ? steps_at_once + 1 : 0;
    if (now() > end || steps_at_once > kMaxStepsAtOnce) return false;
    last = now();
    step();
  }
  return true;
}

bool SimWorld::run(const std::vector<SimWork>& works, Nanoseconds limit) {
  std::size_t first = 0;  // works before it are done
  return run_until(
      [&] {
        while (first < works.size() && works[first]->done()) ++first;
        return first == works.size();
      },
      limit);
}

void SimWorld::run_for(Nanoseconds duration) {
  const TimePoint end = now() + duration;
  run_until([&] { return now() >= end; }, duration);
}

void SimWorld::settle() {
  while (progress_all() || network_.advance()) {
  }
}

std::size_t SimWorld::held_frames() {
  std::size_t held = 0;
  for (int rank = 0; rank < size(); ++rank) {
    if (network_.running(rank)) held += network_.held_frames(rank);
  }
  return held;
}

std::optional<ErrorInfo> SimWorld::collective(const engine::Call& call, std::vector<SimBuffers>& buffers) {
  std::vector<SimWork> works;
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
