#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "engine/compute/compute.h"
#include "plan/algorithms/registry.h"
#include "plan/cost/cost.h"
#include "sim/simulated_job.h"

namespace qccl::sim {
namespace {

constexpr std::uint64_t kGroup = 1;
constexpr Nanoseconds kNever = Nanoseconds::max();
// Gives some ten reports a second.
constexpr std::uint64_t kFramesBetweenReports = 20'000;

// Computes nothing: payloads have their expected size and no content, and each step takes the rank's processor the time
// that it would.
class SizeCompute final : public engine::Compute {
 public:
  SizeCompute(const engine::ComputeContext& context, Network& network, const plan::MachineModel& processors)
      : plan_(*context.plan),
        rank_(context.rank.value()),
        network_(network),
        processors_(processors),
        lanes_(plan_.schedule().lanes.size()) {}

  void begin(const engine::CallArguments&) override {}
  void begin_slice(std::size_t lane, std::uint64_t slice) override { lanes_[lane] = {.slice = slice}; }
  void end_lane(std::size_t) override {}
  engine::Outgoing outgoing(std::size_t lane, std::size_t step, GroupRank) override {
    return {{}, plan_.payload_limit(elements(lane), plan_.schedule().lanes[lane].steps[step].raw)};
  }
  std::size_t write(std::size_t lane, std::size_t step, GroupRank, Bytes payload) override {
    if (std::exchange(lanes_[lane].encoded_step, step) != step) measure(lane, step);
    const bool is_coded = plan_.codec() != nullptr && !plan_.schedule().lanes[lane].steps[step].raw;
    if (!is_coded) return payload.size();
    return std::min(payload.size(), plan_.codec()->expected_encoded_bytes(elements(lane), plan_.call().type));
  }
  Status receive(std::size_t lane, std::size_t step, ConstBytes) override { return local(lane, step); }
  bool keeps_part(std::size_t) const override { return false; }
  Status local(std::size_t lane, std::size_t step) override {
    measure(lane, step);
    return {};
  }
  std::byte* find_destination(std::size_t, std::uint64_t) override { return nullptr; }

 private:
  struct Lane {
    std::uint64_t slice = 0;
    std::size_t encoded_step = SIZE_MAX;  // a send step encodes once for all of its peers; none yet
  };

  std::size_t elements(std::size_t lane) const {
    return plan_.slice_length(plan_.schedule().lanes[lane].count, lanes_[lane].slice);
  }
  void measure(std::size_t lane, std::size_t step) const {
    const plan::StepWork work = plan::work_of(plan_.schedule().lanes[lane], step, plan_.codec() != nullptr);
    const std::size_t bytes = elements(lane) * element_bytes(plan_.call().type);
    const double seconds = plan::seconds_of(work, static_cast<double>(bytes), processors_);
    network_.processor(rank_).work(Nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
  }

  const engine::ExecutablePlan& plan_;
  const int rank_;  // in the group and in the world
  Network& network_;
  const plan::MachineModel& processors_;
  std::vector<Lane> lanes_;
};

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options)
      : options_(options), world_(job_options()), ranks_(static_cast<std::size_t>(options.ranks)) {
    std::vector<int> everyone(ranks_.size());
    std::iota(everyone.begin(), everyone.end(), 0);
    for (const int rank : everyone) {
      world_.engine(rank).use_sizes(options.slice_bytes, options.window_bytes);
      world_.engine(rank).groups().open(kGroup, "world", everyone).take_or_throw();
    }
    world_.on_end([this](int rank) { note_end(rank); });
  }

  Result<SimulationResult> run(const engine::ResolvedCall& call) {
    for (int i = 0; i < options_.warm_up_calls; ++i) QCCL_TRY(warm_up(call));
    begin();
    for (const auto& [rank, after] : options_.losses) {
      world_.at(start_ + after, [this, lost = rank] { leave(lost, &Network::kill); });
    }
    for (const auto& [rank, after] : options_.stops) {
      world_.at(start_ + after, [this, stopped = rank] { leave(stopped, &Network::stop); });
    }
    post_all(call, options_.late);
    QCCL_TRY(run_to_the_end());
    return outcome();
  }

 private:
  struct Rank {
    std::shared_ptr<internal::WorkState> work;
    bool has_left = false;
    TimePoint ended{};
    DelayBreakdown delays;
  };
  SimulatedJobOptions job_options() {
    SimulatedJobOptions job;
    job.ranks = options_.ranks;
    job.seed = options_.seed;
    job.links = options_.links;
    job.links.size_only = true;
    job.engine.slice_bytes = options_.slice_bytes;
    job.engine.checksum = false;  // there are no payloads
    job.engine.peer_timeout = kNever;
    // Dead ranks are seen at once. Only heartbeats tell a stopped rank from those that wait for it.
    if (options_.timeout.count() == 0) job.engine.heartbeat_interval = kNever;
    job.engine.hosts = options_.links.hosts;
    job.cores = static_cast<int>(options_.processors.cores);
    job.hosts_per_machine = options_.processors.hosts_per_machine;
    job.engine.make_compute = [this](const engine::ComputeContext& context) {
      return std::make_unique<SizeCompute>(context, world_.network(), options_.processors);
    };
    return job;
  }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  Flights& flights() { return world_.network().flights(); }

  Status warm_up(const engine::ResolvedCall& call) {
    begin();
    post_all(call, {});
    QCCL_TRY(run_to_the_end());
    for (const Rank& rank : ranks_) {
      if (rank.work->failure()) return Failure(rank.work->failure()->kind, rank.work->failure()->message);
    }
    warm_up_times_.push_back(std::ranges::max(ranks_, {}, &Rank::ended).ended - start_);
    return {};
  }

  // Of a call, whose time, bytes, frames and packets count from now on.
  void begin() {
    for (int rank = 0; rank < options_.ranks; ++rank) world_.network().processor(rank).forget_delays();
    start_ = world_.now();
    wire_bytes_before_ = flights().wire_bytes();
    frames_before_ = flights().frames();
    packets_before_ = flights().packets();
  }

  Status run_to_the_end() {
    std::uint64_t next_report = flights().frames() + kFramesBetweenReports;
    while (running_ > 0) {
      if (!world_.step()) {
        return Failure(ErrorKind::deadline_exceeded, fmt::format("{} ranks wait forever", running_));
      }
      const std::uint64_t frames = flights().frames() - frames_before_;
      if (frames > options_.max_frames) {
        return Failure(ErrorKind::resource_exhausted, fmt::format("more than {} frames", options_.max_frames));
      }
      if (flights().frames() < next_report) continue;
      next_report = flights().frames() + kFramesBetweenReports;
      if (options_.on_progress) options_.on_progress(frames);
    }
    return {};
  }

  void post_all(const engine::ResolvedCall& call, const Moments& late) {
    engine::ResolvedCall resolved = call;
    resolved.slice_bytes = options_.slice_bytes;
    resolved.window_bytes = options_.window_bytes;
    const std::vector<int>& hosts = world_.engine(0).options().hosts;
    if (plan::entry_of(call.algorithm).uses_hosts && call.hosts.empty()) {
      resolved.hosts.assign(hosts.begin(), hosts.end());
    }
    const std::shared_ptr<const Codec> codec = make_codec(call.compression).take_or_throw();
    running_ = options_.ranks;
    for (Rank& rank : ranks_) rank.work = internal::make_work();
    std::vector<Nanoseconds> delays(ranks_.size());
    for (const auto& [rank, delay] : late) delays[static_cast<std::size_t>(rank)] = delay;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const Nanoseconds delay = delays[static_cast<std::size_t>(rank)];
      if (delay.count() == 0) {
        post(rank, resolved, codec);
      } else {
        world_.at(start_ + delay, [this, rank, resolved, codec] { post(rank, resolved, codec); });
      }
    }
  }

  void post(int rank, const engine::ResolvedCall& call, const std::shared_ptr<const Codec>& codec) {
    engine::CallArguments arguments;
    arguments.group = kGroup;
    arguments.plan = std::make_shared<const engine::ExecutablePlan>(call, options_.ranks, GroupRank(rank), codec);
    arguments.timeout = options_.timeout.count() == 0 ? kNever : options_.timeout;
    arguments.work = at(rank).work;
    world_.engine(rank).post(std::move(arguments));
  }

  void note_end(int rank) {
    const Processor& processor = world_.network().processor(rank);
    at(rank).ended = processor.free_at();
    at(rank).delays = processor.delays();
    --running_;
  }

  void leave(int rank, void (Network::*how)(int)) {
    if (!std::exchange(at(rank).has_left, true) && !at(rank).work->done()) --running_;
    (world_.network().*how)(rank);
  }

  SimulationResult outcome() {
    SimulationResult outcome;
    outcome.warm_up_times = warm_up_times_;
    outcome.wire_bytes = flights().wire_bytes() - wire_bytes_before_;
    outcome.frames = flights().frames() - frames_before_;
    outcome.packets = flights().packets().since(packets_before_);
    for (int rank = 0; rank < options_.ranks; ++rank) {
      outcome.held_bytes =
          std::max<std::uint64_t>(outcome.held_bytes, world_.network().endpoint(rank).held().most_bytes);
    }
    for (const Rank& rank : ranks_) {
      if (!rank.work->done()) continue;  // it died or stopped
      if (rank.work->failure() && outcome.failed_ranks++ == 0) outcome.failure = rank.work->failure()->message;
      const Nanoseconds time = rank.ended - start_;
      if (time < outcome.time) continue;
      outcome.time = time;
      outcome.delays = rank.delays;
    }
    return outcome;
  }

  const SimulationOptions& options_;
  SimulatedJob world_;
  std::vector<Rank> ranks_;
  std::vector<Nanoseconds> warm_up_times_;
  int running_ = 0;  // ranks still alive whose call has not ended
  // Of the call that is timed: when it began, and what was before.
  TimePoint start_{};
  std::uint64_t wire_bytes_before_ = 0;
  std::uint64_t frames_before_ = 0;
  PacketCounts packets_before_;
};

}  // namespace

Result<SimulationResult> simulate(const SimulationOptions& options, const engine::ResolvedCall& call) {
  return Simulation(options).run(call);
}

}  // namespace qccl::sim
