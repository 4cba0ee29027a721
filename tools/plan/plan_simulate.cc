// `qccl plan simulate`: runs the real engine of all ranks over a simulated network.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "plan/cost/cost.h"
#include "sim/simulation.h"
#include "tools/commands.h"
#include "tools/flag_values.h"
#include "tools/plan/plan_simulate_options.h"

namespace qccl::tools {
namespace {

sim::FrameWork frame_work(const plan::LinkCost& link) { return {nanoseconds(link.frame_seconds), link.rank_rate}; }
// A latency includes the processors' work at both ends.
Nanoseconds travel(const plan::LinkCost& link) {
  return nanoseconds(std::max(0.0, link.latency - 2 * link.frame_seconds));
}

sim::SimulationOptions simulation_options(const SimulateOptions& options) {
  const PlanLayout& layout = options.layout;
  const double rate = *layout.rate * layout.links().wire_efficiency;
  sim::SimulationOptions simulation;
  simulation.ranks = layout.world;
  simulation.seed = options.seed;
  simulation.late = options.late;
  simulation.losses = options.losses;
  simulation.stops = options.stops;
  simulation.timeout = nanoseconds(options.timeout);
  simulation.window_bytes = options.layout.window_bytes();
  // Grants and other control frames come on top of the plan's.
  simulation.max_frames = 4 * options.max_frames;
  sim::NetworkOptions& links = simulation.links;
  links.bytes_per_second = rate;
  links.ingress_bytes_per_second = rate;
  simulation.processors = layout.links();
  links.slots = SIZE_MAX / 2;
  links.latency = travel(simulation.processors.wire);
  links.jitter = nanoseconds(options.jitter);
  links.burst_bytes = layout.burst;
  links.hosts = layout.hosts;
  links.local_latency = travel(simulation.processors.local);
  links.wire_work = frame_work(simulation.processors.wire);
  links.local_work = frame_work(simulation.processors.local);
  if (options.racks > 1) {
    links.hosts_per_rack = (layout.host_count() + options.racks - 1) / options.racks;
    links.rack_bytes_per_second = options.rack_rate * layout.links().wire_efficiency;
  }
  for (const auto& [rank, factor] : options.stragglers) links.slow_ranks.emplace_back(rank, rate / factor);
  // The interval at which a rank polls; fine enough not to affect the result.
  links.tick = std::max(Nanoseconds(1), std::min(links.latency, Nanoseconds(20'000)) / 20);
  return simulation;
}

// The number of frames of the plan alone. Runs that would never end are skipped by it.
double frames_of(const plan::Request& request) {
  double frames = 0;
  for (int rank = 0; rank < request.world; ++rank) {
    for (const plan::Lane& lane : plan::schedule_of(request, rank).lanes) {
      const auto slices =
          static_cast<double>(std::max<std::uint64_t>(1, slice_count(lane.count, request.slice_elements)));
      for (const plan::Step& step : lane.steps) {
        if (plan::sends(step.kind)) frames += slices * static_cast<double>(step.peers.size());
      }
    }
  }
  return frames;
}

// One line on a terminal that shows the progress; prints nothing if standard error is not a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::size_t runs) : runs_(runs), is_shown_(::isatty(STDERR_FILENO) == 1) {}

  // The next of the runs begins.
  void begin(const std::string& what, double frames) {
    ++run_;
    what_ = what;
    all_frames_ = frames;
    show(0);
  }
  void show(std::uint64_t frames) const {
    if (!is_shown_) return;
    // Grants and other control frames come on top of the plan's.
    const double part = std::min(0.99, static_cast<double>(frames) / std::max(1.0, all_frames_));
    fmt::print(stderr, "\r[{}/{}] {}: {:.0f}% of {:.2g} frames\033[K", run_, runs_, what_, 100 * part, all_frames_);
  }
  void clear() const {
    if (is_shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  const std::size_t runs_;
  const bool is_shown_;
  std::size_t run_ = 0;
  std::string what_;
  double all_frames_ = 0;
};

std::vector<std::uint64_t> sizes_of(const SimulateOptions& options) {
  std::vector<std::uint64_t> sizes;
  auto bytes = static_cast<double>(options.min_bytes);
  do {
    sizes.push_back(static_cast<std::uint64_t>(bytes));
    bytes *= options.factor;
  } while (bytes > 0 && bytes <= static_cast<double>(options.max_bytes));
  return sizes;
}

class Table {
 public:
  explicit Table(const SimulateOptions& options)
      : options_(options),
        sizes_(sizes_of(options)),
        algorithms_(options.algorithm ? std::vector{*options.algorithm} : plan::algorithms_of(options.collective)),
        progress_(sizes_.size() * algorithms_.size()) {}

  int run() {
    fmt::print("# {}, compression {}, seed {}\n# {}\n", to_string(options_.collective),
               options_.layout.compression.to_string(), options_.seed, describe(options_.layout));
    fmt::print("#{:>11}   {:>12} {:>11} {:>7} {:>7} {:>7} {:>7} {:>13} {:>10} {:>10}\n", "size (B)", "algorithm",
               "time", "wire", "latency", "working", "waiting", "wire/rank (B)", "frames", "held (B)");
    for (const std::uint64_t bytes : sizes_) {
      for (const Algorithm algorithm : algorithms_) {
        run_algorithm(bytes, algorithm);
        std::fflush(stdout);
      }
    }
    return exit_code_;
  }

 private:
  void run_algorithm(std::uint64_t bytes, Algorithm algorithm) {
    const plan::Request request = request_of(options_.layout, options_.collective, algorithm, bytes);
    const Algorithm chosen = plan::choose(selection_key(options_.layout, options_.collective, bytes),
                                          options_.layout.hosts, options_.layout.links());
    const std::string name = fmt::format("{:>12}   {:>12}", bytes,
                                         fmt::format("{}{}", to_string(algorithm), algorithm == chosen ? "*" : " "));
    const double frames = frames_of(request);
    progress_.begin(fmt::format("{} {}", size_text(bytes), to_string(algorithm)), frames);
    if (frames > static_cast<double>(options_.max_frames)) {
      progress_.clear();
      return fmt::print("{} {:>11} (needs {:.3g} frames; --max-frames)\n", name, "-", frames);
    }
    const auto result = simulate(request);
    progress_.clear();
    print_row(name, result);
  }

  Result<sim::SimulationResult> simulate(const plan::Request& request) const {
    engine::ResolvedCall call;
    call.collective = request.collective;
    call.count = request.count;
    call.type = DataType::float32;
    call.compression = options_.layout.compression;
    call.algorithm = request.algorithm;
    sim::SimulationOptions options = simulation_options(options_);
    options.on_progress = [this](std::uint64_t frames) { progress_.show(frames); };
    return sim::simulate(options, call);
  }

  void print_row(const std::string& name, const Result<sim::SimulationResult>& result) {
    if (!result.ok()) {
      exit_code_ = kExitFailed;
      fmt::print("{} {:>11} {}\n", name, "-", result.error().message);
      return;
    }
    const sim::SimulationResult& run = result.value();
    const double all = std::max<double>(1, static_cast<double>(run.time.count()));
    const auto percent = [all](Nanoseconds part) {
      return fmt::format("{:.1f}%", 100.0 * static_cast<double>(part.count()) / all);
    };
    fmt::print("{} {:>11} {:>7} {:>7} {:>7} {:>7} {:>13} {:>10} {:>10}\n", name,
               time_text(static_cast<double>(run.time.count()) * 1e-9), percent(run.delays.wire),
               percent(run.delays.latency), percent(run.delays.working), percent(run.delays.waiting),
               run.wire_bytes / static_cast<std::uint64_t>(options_.layout.world), run.frames, run.held_bytes);
    if (run.failed_ranks == 0) return;
    if (!options_.has_faults()) exit_code_ = kExitFailed;
    fmt::print("# failed on {} ranks, the last at that time: {}\n", run.failed_ranks, run.failure);
  }

  const SimulateOptions& options_;
  const std::vector<std::uint64_t> sizes_;
  const std::vector<Algorithm> algorithms_;
  ProgressLine progress_;
  int exit_code_ = 0;
};

}  // namespace

int plan_simulate_main(const std::vector<std::string>& arguments) {
  SimulateOptions options;
  if (const auto code = parse_simulate_options(arguments, options)) return *code;
  return Table(options).run();
}

}  // namespace qccl::tools
