#include "support/sim_world.h"

#include <algorithm>
#include <numeric>

#include "support/reference.h"

namespace qccl::testing {
namespace {

sim::SimulatedJobOptions world_options(int ranks, const SimOptions& options) {
  sim::SimulatedJobOptions world;
  world.ranks = ranks;
  world.seed = options.seed;
  world.links = options.link;
  world.engine.slice_bytes = options.slice_bytes;
  world.engine.peer_timeout = options.peer_timeout;
  world.engine.hosts = options.hosts;
  world.engine.seed = options.codec_seed;
  world.slice_bytes_of_rank = options.slice_bytes_of_rank;
  world.logs = options.logs;
  return world;
}

}  // namespace

SimWorld::SimWorld(int world, SimOptions options)
    : codec_(options.codec), feedback_(options.feedback), world_(world_options(world, options)) {
  for (int rank = 0; rank < world; ++rank) {
    engine(rank).use_sizes(engine(rank).options().slice_bytes, options.window_bytes);
  }
  if (!options.open_world_group) return;
  std::vector<int> everyone(static_cast<std::size_t>(world));
  std::iota(everyone.begin(), everyone.end(), 0);
  open_group(kSimGroup, "world", everyone);
}

void SimWorld::open_group(std::uint64_t id, const std::string& name, const std::vector<int>& ranks) {
  for (const int rank : ranks) open_group_on(rank, id, name, ranks);
}

void SimWorld::open_group_on(int rank, std::uint64_t id, const std::string& name, const std::vector<int>& ranks) {
  groups_[id] = ranks;
  engine(rank).groups().open(id, name, ranks).take_or_throw();
}

SimWork SimWorld::post(int rank, const engine::ResolvedCall& call, const SimArguments& given) {
  const std::vector<int>& members = groups_[given.group];
  const auto member = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
  engine::CallArguments arguments;
  arguments.group = given.group;
  arguments.plan = plan_of(call, rank, members, member);
  arguments.input = given.input;
  arguments.output = given.output;
  arguments.premul_factor = premul_factor_of(member);
  if (arguments.plan->codec() != nullptr && call.error_feedback) {
    const bool is_own = !given.feedback.is_none();
    arguments.feedback = (is_own ? given.feedback : feedback_[static_cast<std::size_t>(rank)]).state();
  }
  if (given.keep_input) arguments.kept = {kept_inputs_, *arguments.plan, given.input, given.output};
  arguments.timeout = given.timeout;
  arguments.work = std::make_shared<internal::WorkState>();
  auto work = arguments.work;
  engine(rank).post(std::move(arguments));
  return work;
}

// The plan with the job's settings.
std::shared_ptr<const engine::ExecutablePlan> SimWorld::plan_of(engine::ResolvedCall call, int rank,
                                                                const std::vector<int>& members, int member) {
  const engine::EngineOptions& options = engine(rank).options();
  call.slice_bytes = options.slice_bytes;
  call.window_bytes = engine(rank).frame_sender().eager().window_bytes();
  if (call.algorithm == Algorithm::hierarchical) {
    call.hosts.clear();
    for (const int each : members) {
      call.hosts.push_back(options.hosts.empty() ? 0 : options.hosts[static_cast<std::size_t>(each)]);
    }
  }
  auto codec = make_codec(call.compression).take_or_throw();
  if (codec != nullptr && codec_ != nullptr) codec = codec_;
  return std::make_shared<const engine::ExecutablePlan>(call, static_cast<int>(members.size()), GroupRank(member),
                                                        std::move(codec));
}

SimWork SimWorld::post_message(int rank, const engine::Message& message, const SimMessage& of) {
  engine::CallArguments arguments;
  arguments.group = of.group;
  arguments.message = message;
  arguments.message->count = of.count;
  arguments.message->type = of.type;
  arguments.input = of.data;
  arguments.output = of.data;
  arguments.feedback = of.feedback.state();
  arguments.timeout = of.timeout;
  arguments.work = std::make_shared<internal::WorkState>();
  auto work = arguments.work;
  engine(rank).post(std::move(arguments));
  return work;
}

SimWorld::Shrinking SimWorld::shrink(int rank, const SimShrink& call) {
  const Shrinking shrinking{std::make_shared<internal::WorkState>(), std::make_shared<std::vector<GroupRank>>()};
  engine::ShrinkTerms terms{engine::MemberSet(groups_[call.group].size(), 0), call.quorum == Quorum::any};
  for (const int member : call.without) terms.without[static_cast<std::size_t>(member)] = 1;
  engine(rank).shrinker().begin(call.group,
                                {std::move(terms), call.patience, call.timeout, shrinking.work, shrinking.members});
  return shrinking;
}

std::vector<int> SimWorld::Shrinking::then(const std::vector<int>& ranks) const {
  std::vector<int> found;
  for (const GroupRank member : *members) found.push_back(ranks[member.index()]);
  return found;
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

std::size_t SimWorld::held_frames() {
  std::size_t held = 0;
  for (int rank = 0; rank < size(); ++rank) {
    if (network().running(rank)) held += network().endpoint(rank).held().frames;
  }
  return held;
}

std::optional<ErrorInfo> SimWorld::collective(const engine::ResolvedCall& call, std::vector<SimBuffers>& buffers) {
  std::vector<SimWork> works;
  for (int rank = 0; rank < size(); ++rank) {
    SimBuffers& own = buffers[static_cast<std::size_t>(rank)];
    std::byte* output = own.output.empty() ? own.input.data() : own.output.data();
    works.push_back(post(rank, call, {own.input.data(), output}));
  }
  if (!run(works)) {
    return ErrorInfo{.kind = ErrorKind::deadline_exceeded, .message = "the simulation did not end: " + call.describe()};
  }
  for (const auto& work : works) {
    if (work->failure()) return *work->failure();
  }
  return std::nullopt;
}

Result<engine::ResolvedCall> TestGroup::resolve(Collective collective, std::uint64_t count, DataType type,
                                                const CallOptions& options) const {
  return comm::resolve({collective, nullptr, nullptr, count, type, options}, world, defaults);
}

Result<engine::ResolvedCall> resolve_call(Collective collective, std::uint64_t count, DataType type, int world,
                                          const CallOptions& options) {
  const comm::GroupDefaults defaults;
  return TestGroup{world, defaults}.resolve(collective, count, type, options);
}

Result<engine::ResolvedCall> resolve_call(Collective collective, const std::vector<std::uint64_t>& counts,
                                          DataType type, int world, const CallOptions& options) {
  const Counts all(counts);
  const std::size_t own = collective == Collective::all_to_all ? std::min<std::size_t>(world, all.size()) : all.size();
  return comm::resolve({collective, nullptr, nullptr, 0, type, options, all.first(own), all.subspan(own)}, world, {});
}

engine::ResolvedCall make_call(Collective collective, std::uint64_t count, DataType type, int world,
                               const CallOptions& options) {
  return resolve_call(collective, count, type, world, options).take_or_throw();
}

}  // namespace qccl::testing
