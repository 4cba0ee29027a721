// `qccl plan simulate`: the real engine of all ranks over a simulated network.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "plan.h"
#include "plan/choice.h"
#include "plan_layout.h"
#include "plan_words.h"
#include "sim/simulation.h"

namespace qccl::tools {
namespace {

constexpr const char* kFooter =
    R"(Runs the engine of every rank, with its frames, grants and queues, over hosts whose links have a rate
out and in, and prints the virtual time of each algorithm. Data has sizes only; computing takes no time.
The same flags and seed give the same output.

Where the time went is followed back from the last rank's end, frame by frame, to the start:
  wire      being sent, or queued for it at the sender's host
  latency   travelling
  waiting   queued behind other hosts' frames (at racks, at the receiver's host), or for a rank to send

An algorithm that moves more than --max-frames frames is not run. The chosen one is marked *.

Exit code: 0; 1 if an operation failed where no rank was lost; 2 for wrong flags.

Examples:
  qccl plan simulate --world 512 --hosts 64 --rate 10gbit --latency 50us all_reduce -b 1K -e 256M
  qccl plan simulate --hosts 4x8 --rate 1gbit all_reduce -b 64M --compression minmax:bits=4
  qccl plan simulate --world 64 --racks 4 --rack-rate 20gbit all_to_all -b 1M -e 64M -f 8
  qccl plan simulate --world 16 all_reduce -b 16M --straggler 3:10 --jitter 20us --seed 7
  qccl plan simulate --world 16 all_reduce -b 16M --lose 3@2ms
)";

struct SimulateOptions {
  Collective collective = Collective::all_reduce;
  PlanLayout layout;
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = 0;
  double factor = 4;
  std::optional<Algorithm> algorithm;
  int racks = 1;
  double rack_rate = 0;
  double jitter = 0;
  std::uint64_t seed = 1;
  std::uint64_t max_frames = 20'000'000;
  std::vector<std::string> straggler_words;
  std::vector<std::string> loss_words;
  std::vector<std::pair<int, double>> stragglers;  // rank, factor
  std::vector<std::pair<int, Nanoseconds>> losses;
};

int usage_error(const std::string& text) {
  fmt::print(stderr, "qccl plan simulate: {}\n", text);
  return kPlanUsage;
}

// "RANK" before the mark and the rest behind it; nothing if that is no rank of the world.
std::optional<std::pair<int, std::string>> split(const std::string& word, char mark, int world) {
  const std::size_t at = word.find(mark);
  if (at == std::string::npos) return std::nullopt;
  int rank = -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + at, rank);
  if (error != std::errc() || end != word.data() + at || rank < 0 || rank >= world) return std::nullopt;
  return std::pair(rank, word.substr(at + 1));
}

// -1 if the text is no time.
double seconds_of(std::string text) {
  double seconds = -1;
  try {
    time_word()(text);  // changes it to seconds
    std::from_chars(text.data(), text.data() + text.size(), seconds);
  } catch (const CLI::ValidationError&) {
    return -1;
  }
  return seconds;
}

std::optional<int> take_faults(SimulateOptions& options) {
  for (const std::string& word : options.straggler_words) {
    const auto parts = split(word, ':', options.layout.world);
    double factor = 0;
    if (parts) std::from_chars(parts->second.data(), parts->second.data() + parts->second.size(), factor);
    if (factor < 1) return usage_error(fmt::format("--straggler {} is not RANK:FACTOR, such as 3:10", word));
    options.stragglers.emplace_back(parts->first, factor);
  }
  for (const std::string& word : options.loss_words) {
    const auto parts = split(word, '@', options.layout.world);
    const double seconds = parts ? seconds_of(parts->second) : -1;
    if (!parts || seconds < 0) return usage_error(fmt::format("--lose {} is not RANK@TIME, such as 3@2ms", word));
    options.losses.emplace_back(parts->first, Nanoseconds(std::llround(seconds * 1e9)));
  }
  return std::nullopt;
}

std::optional<int> check_options(SimulateOptions& options) {
  if (auto problem = complete(options.layout)) return usage_error(*problem);
  if (auto problem = refusal(options.layout, options.collective)) return usage_error(*problem);
  options.max_bytes = std::max(options.max_bytes, options.min_bytes);
  if (options.max_bytes > 1ull << 43) return usage_error("sizes are up to 8 TiB");
  if (options.factor < 1.01 || (options.min_bytes == 0 && options.max_bytes > 0)) {
    return usage_error("-f 1 or a size of 0 never gets from -b to -e");
  }
  if (options.racks > options.layout.host_count()) return usage_error("there are more racks than hosts");
  const auto all = plan::algorithms_of(options.collective);
  if (options.algorithm && std::find(all.begin(), all.end(), *options.algorithm) == all.end()) {
    return usage_error(
        fmt::format("{} has no algorithm {}", to_string(options.collective), to_string(*options.algorithm)));
  }
  return take_faults(options);
}

std::optional<int> parse_options(const std::vector<std::string>& arguments, SimulateOptions& options) {
  CLI::App app("Runs a collective of many ranks over a simulated network.", "qccl plan simulate");
  set_usage(app, "qccl plan simulate COLLECTIVE --world N -b SIZE [OPTIONS]");
  app.footer(kFooter);
  add_named(app, "COLLECTIVE", options.collective, collective_names(), "all_reduce, broadcast, ...")->required();
  app.add_option("-b,--minbytes", options.min_bytes, "Size to start with; takes K, M or G")
      ->required()
      ->transform(size_word());
  app.add_option("-e,--maxbytes", options.max_bytes, "Size to end at (default: that of -b)")->transform(size_word());
  app.add_option("-f,--stepfactor", options.factor, "Factor between sizes (default 4)");
  add_layout_flags(app, options.layout);
  add_named(app, "--algorithm", options.algorithm, algorithm_names(), "Only this one (default: all there are)");
  app.add_option("--racks", options.racks, "Racks, with equally many hosts each (default 1)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--rack-rate", options.rack_rate, "Of a rack's uplink, up and down (default: no limit)")
      ->transform(rate_word());
  app.add_option("--jitter", options.jitter, "Up to so much more latency of a frame, at random (default 0us)")
      ->transform(time_word());
  app.add_option("--straggler", options.straggler_words, "RANK:FACTOR: sends and receives at the link's rate / FACTOR");
  app.add_option("--lose", options.loss_words, "RANK@TIME: dies so long after the start of each operation");
  app.add_option("--seed", options.seed, "Of what is random (default 1)");
  app.add_option("--max-frames", options.max_frames, "Most frames of an operation (default 20M)")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, std::uint64_t>{{"K", 1000}, {"M", 1000000}}));
  if (auto code = parse(app, arguments, kPlanUsage)) return code;
  return check_options(options);
}

Nanoseconds nanoseconds(double seconds) { return Nanoseconds(std::llround(seconds * 1e9)); }

sim::SimulationOptions simulation_options(const SimulateOptions& options) {
  const PlanLayout& layout = options.layout;
  const double rate = layout.rate * layout.links().wire_efficiency;
  sim::SimulationOptions world;
  world.ranks = layout.world;
  world.seed = options.seed;
  world.losses = options.losses;
  world.links.bytes_per_second = rate;
  world.links.ingress_bytes_per_second = rate;
  world.links.latency = nanoseconds(layout.latency);
  world.links.jitter = nanoseconds(options.jitter);
  world.links.hosts = layout.hosts;
  world.links.local_bytes_per_second = layout.local_rate;
  world.links.local_latency = nanoseconds(layout.local_latency);
  if (options.racks > 1) {
    world.links.hosts_per_rack = (layout.host_count() + options.racks - 1) / options.racks;
    world.links.rack_bytes_per_second = options.rack_rate * layout.links().wire_efficiency;
  }
  for (const auto& [rank, factor] : options.stragglers) world.links.slow_ranks.emplace_back(rank, rate / factor);
  // As often as a rank looks; fine enough to change nothing.
  world.links.tick = std::max(Nanoseconds(1), std::min(world.links.latency, Nanoseconds(20'000)) / 20);
  return world;
}

// What the plan alone says it takes, to leave out what would never end.
double frames_of(const plan::Request& request) {
  double frames = 0;
  for (int rank = 0; rank < request.world; ++rank) {
    for (const plan::Lane& lane : plan::make_role(request, rank).lanes) {
      const auto slices =
          static_cast<double>(std::max<std::uint64_t>(1, slice_count(lane.count, request.slice_elements)));
      for (const plan::Step& step : lane.steps) {
        const bool receives = step.kind == plan::StepKind::recv_copy || step.kind == plan::StepKind::recv_reduce;
        if (!receives) frames += slices * static_cast<double>(step.peers.size());
      }
    }
  }
  return frames;
}

class Simulation {
 public:
  explicit Simulation(const SimulateOptions& options)
      : options_(options), shows_progress_(::isatty(STDERR_FILENO) == 1) {}

  int run() {
    fmt::print("# {}, compression {}, seed {}\n# {}\n", to_string(options_.collective),
               options_.layout.compression.to_string(), options_.seed, describe(options_.layout));
    fmt::print("#{:>11}   {:>12} {:>11} {:>7} {:>7} {:>7} {:>13} {:>10}\n", "size (B)", "algorithm", "time", "wire",
               "latency", "waiting", "wire/rank (B)", "frames");
    auto bytes = static_cast<double>(options_.min_bytes);
    do {
      run_size(static_cast<std::uint64_t>(bytes));
      bytes *= options_.factor;
    } while (bytes > 0 && bytes <= static_cast<double>(options_.max_bytes));
    return exit_code_;
  }

 private:
  void run_size(std::uint64_t bytes) {
    for (const Algorithm algorithm : plan::algorithms_of(options_.collective)) {
      if (options_.algorithm && *options_.algorithm != algorithm) continue;
      run_algorithm(bytes, algorithm);
    }
  }

  void run_algorithm(std::uint64_t bytes, Algorithm algorithm) {
    const plan::Request request = request_of(options_.layout, options_.collective, algorithm, bytes);
    const bool is_compressed = options_.layout.codec != nullptr;
    const std::uint64_t input_bytes = request.count * sizeof(float);
    const Algorithm chosen = plan::choose(options_.collective, input_bytes, request.world, is_compressed);
    const std::string name = fmt::format("{:>12}   {:>12}", bytes,
                                         fmt::format("{}{}", to_string(algorithm), algorithm == chosen ? "*" : " "));
    const double frames = frames_of(request);
    if (frames > static_cast<double>(options_.max_frames)) {
      fmt::print("{} {:>11} (needs {:.3g} frames; --max-frames)\n", name, "-", frames);
      return;
    }
    show_progress(fmt::format("{} {}: {:.3g} frames", size_text(bytes), to_string(algorithm), frames));
    const auto outcome = simulate(request);
    clear_progress();
    print_row(name, outcome);
    std::fflush(stdout);
  }

  Result<sim::Outcome> simulate(const plan::Request& request) const {
    engine::Call call;
    call.collective = request.collective;
    call.count = request.count;
    call.type = DataType::float32;
    call.compression = options_.layout.compression;
    call.algorithm = request.algorithm;
    sim::SimulationOptions options = simulation_options(options_);
    // Grants and other control frames come on top of the plan's.
    options.max_frames = 4 * options_.max_frames;
    return sim::simulate(options, call);
  }

  void print_row(const std::string& name, const Result<sim::Outcome>& result) {
    if (!result.ok()) {
      exit_code_ = kPlanWrong;
      fmt::print("{} {:>11} {}\n", name, "-", result.error().message);
      return;
    }
    const sim::Outcome& o = result.value();
    const double all = std::max<double>(1, static_cast<double>(o.time.count()));
    const auto percent = [all](Nanoseconds part) {
      return fmt::format("{:.1f}%", 100.0 * static_cast<double>(part.count()) / all);
    };
    fmt::print("{} {:>11} {:>7} {:>7} {:>7} {:>13} {:>10}\n", name,
               time_text(static_cast<double>(o.time.count()) * 1e-9), percent(o.account.wire),
               percent(o.account.latency), percent(o.account.waiting),
               o.wire_bytes / static_cast<std::uint64_t>(options_.layout.world), o.frames);
    if (o.failed_ranks == 0) return;
    if (options_.losses.empty()) exit_code_ = kPlanWrong;
    fmt::print("# failed on {} ranks, the last at that time: {}\n", o.failed_ranks, o.failure);
  }

  void show_progress(const std::string& what) const {
    if (shows_progress_) fmt::print(stderr, "\r{}\033[K", what);
  }
  void clear_progress() const {
    if (shows_progress_) fmt::print(stderr, "\r\033[K");
  }

  const SimulateOptions& options_;
  const bool shows_progress_;
  int exit_code_ = 0;
};

}  // namespace

int plan_simulate_main(const std::vector<std::string>& arguments) {
  SimulateOptions options;
  if (const auto code = parse_options(arguments, options)) return *code;
  return Simulation(options).run();
}

}  // namespace qccl::tools
