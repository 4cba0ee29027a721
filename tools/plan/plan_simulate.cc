// `qccl plan simulate`: runs the real engine of all ranks over a simulated network.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/text.h"
#include "plan/algorithms/registry.h"
#include "plan/cost/cost.h"
#include "sim/simulation.h"
#include "tools/command_line.h"
#include "tools/plan/plan_inside.h"
#include "tools/plan/plan_layout.h"

namespace qccl::tools {
namespace {

constexpr const char* kSimulateFooter =
    R"(Runs the engine of every rank, with its frames, grants and queues, over hosts whose links have a rate out and
in, and prints the virtual time of each algorithm. Data has only a size; the profile has the processors' time for
frames, additions and codecs. The same flags and seed give the same output.

The columns account for the time, followed back from the last rank's end, frame by frame, to the start:
  wire      being sent, or queued for it at the sender's host
  latency   travelling
  working   ranks' processors: frames, additions, codecs
  waiting   queued behind other hosts' frames (at racks, at the receiver's host), or for a rank to send

With --up-queue, --down-queue or --loss TCP carries the frames between hosts. A queue drops the packets that find it
full, and further columns count packets:
  dropped   by the queues out of hosts (up) and into hosts (down)
  lost      at random, by --loss
  resent    sent again
  timeouts  of connections, which nothing reached for 200 ms and a round trip
A connection begins with a small window; --warm-up lets it learn the line before the call that is timed.

An algorithm that moves more than --max-frames frames is not run. '*' marks the chosen algorithm.

--straggler, --late, --lose and --stop may be given several times, for several ranks. With --slow-host owners in sra
have the shares that the library learns for such lines; --equal-shares leaves them equal.

Exit code: 0; 1 if an operation failed although no rank was to die or stop; 2 for wrong flags.

Examples:
  qccl plan simulate --world 512 --hosts 64 --rate 10gbit --latency 50us all_reduce -b 1K -e 256M
  qccl plan simulate --hosts 4x8 --rate 1gbit all_reduce -b 64M --compression minmax:bits=4
  qccl plan simulate --world 8 --cores 2 --hosts-per-machine 4 --rate 1gbit --burst 64K all_reduce -b 1M
  qccl plan simulate --hosts 8x1 --sites 2 --latency 50ms --near-latency 100us --rate 1gbit all_reduce -b 1M
  qccl plan simulate --world 2 --rate 1gbit --latency 50ms --connections 4 --buffer 4M all_reduce -b 64M
  qccl plan simulate --world 8 --rate 200mbit --latency 10ms --up-queue 500K --down-queue 500K --congestion bbr
                     --warm-up 3 all_reduce -b 16M
  qccl plan simulate --world 64 --racks 4 --rack-rate 20gbit all_to_all -b 1M -e 64M -f 8
  qccl plan simulate --world 16 all_reduce -b 16M --straggler 3:10 --jitter 20us --seed 7
  qccl plan simulate --world 8 --rate 1gbit --latency 10ms --slow-host 3:2 all_reduce -b 64M
  qccl plan simulate --world 16 all_reduce -b 16M --late 3@5ms --late 4@1ms
  qccl plan simulate --world 16 all_reduce -b 16M --lose 3@2ms
  qccl plan simulate --world 16 all_reduce -b 16M --stop 3@2ms --timeout 1s
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
  int connections = 1;
  double flow_rate = 0;
  std::uint64_t buffer = 0;
  std::optional<std::uint64_t> window;
  std::uint64_t up_queue = 0;
  std::uint64_t down_queue = 0;
  double loss = 0;
  std::optional<sim::CongestionControl> congestion;
  std::optional<std::uint64_t> packet_bytes;
  int warm_up_calls = 0;
  double jitter = 0;
  std::uint64_t seed = 1;
  std::uint64_t max_frames = 20'000'000;
  double timeout = 0;                              // seconds; 0: none
  std::vector<std::pair<int, double>> stragglers;  // rank, factor
  sim::Moments late;
  sim::Moments losses;
  sim::Moments stops;

  bool has_faults() const { return !losses.empty() || !stops.empty(); }
  bool has_packets() const { return up_queue > 0 || down_queue > 0 || loss > 0; }
};

Nanoseconds nanoseconds(double seconds) { return Nanoseconds(std::llround(seconds * 1e9)); }

// ---- Flags

const Names<sim::CongestionControl> kCongestionNames = {{"cubic", sim::CongestionControl::cubic},
                                                        {"bbr", sim::CongestionControl::bbr}};

// The rank before the mark and the text after it; nothing if it is not a rank of the world.
std::optional<std::pair<int, std::string>> split(const std::string& word, char mark, int world) {
  const std::size_t at = word.find(mark);
  if (at == std::string::npos) return std::nullopt;
  const int rank = parse_number<int>(word.substr(0, at)).value_or(-1);
  if (rank < 0 || rank >= world) return std::nullopt;
  return std::pair(rank, word.substr(at + 1));
}

// Returns -1 if the text is not a time.
double seconds_of(std::string text) {
  try {
    time_value()(text);  // changes it to seconds
  } catch (const CLI::ValidationError&) {
    return -1;
  }
  return parse_number<double>(text).value_or(-1);
}

void take_moments(const char* flag, const std::vector<std::string>& words, int world, sim::Moments& moments) {
  for (const std::string& word : words) {
    const auto parts = split(word, '@', world);
    const double seconds = parts ? seconds_of(parts->second) : -1;
    if (seconds < 0) refuse(fmt::format("{} {} is not RANK@TIME, such as 3@2ms", flag, word));
    moments.emplace_back(parts->first, nanoseconds(seconds));
  }
}

// The flags that name ranks, as given.
struct FaultFlags {
  std::vector<std::string> stragglers, late, losses, stops;
};

void take_faults(const FaultFlags& flags, SimulateOptions& options) {
  for (const std::string& word : flags.stragglers) {
    const auto parts = split(word, ':', options.layout.world);
    const double factor = parts ? parse_number<double>(parts->second).value_or(0) : 0;
    if (factor < 1) refuse(fmt::format("--straggler {} is not RANK:FACTOR, such as 3:10", word));
    options.stragglers.emplace_back(parts->first, factor);
  }
  take_moments("--late", flags.late, options.layout.world, options.late);
  take_moments("--lose", flags.losses, options.layout.world, options.losses);
  take_moments("--stop", flags.stops, options.layout.world, options.stops);
  if (!options.stops.empty() && options.timeout == 0) refuse("--stop needs --timeout, by which ranks notice the stop");
}

constexpr std::uint64_t kLeastPacket = 1448;  // a segment
constexpr std::uint64_t kMostPacket = 64 * 1024;

// A queue that takes no whole packet never passes one while it is in use.
void check_packets(const SimulateOptions& options) {
  if (!(options.loss >= 0 && options.loss <= 0.5)) refuse("--loss is a share of the packets, from 0 to 0.5");
  if (!options.has_packets() && (options.congestion || options.packet_bytes)) {
    refuse("--congestion and --packet say how TCP sends: they need --up-queue, --down-queue or --loss");
  }
  const std::uint64_t packet = options.packet_bytes.value_or(kLeastPacket);
  if (packet < kLeastPacket || packet > kMostPacket) refuse("--packet is from 1448 bytes, a segment, to 64K");
  for (const std::uint64_t queue : {options.up_queue, options.down_queue}) {
    if (queue > 0 && queue < packet) refuse(fmt::format("a queue of {} bytes holds no packet of {}", queue, packet));
  }
}

void complete(SimulateOptions& options) {
  complete(options.layout, options.collective);
  if (options.window) options.layout.links.window_bytes = *options.window;
  options.max_bytes = std::max(options.max_bytes, options.min_bytes);
  if (options.max_bytes > 1ull << 43) refuse("sizes are up to 8 TiB");
  if (options.factor < 1.01 || (options.min_bytes == 0 && options.max_bytes > 0)) {
    refuse("-f 1 or a size of 0 never gets from -b to -e");
  }
  if (options.racks > options.layout.host_count()) refuse("there are more racks than hosts");
  if (options.racks > 1 && options.layout.has_site_rate()) refuse("--racks and --site-rate exclude each other");
  check_algorithm(options.collective, options.algorithm);
  check_packets(options);
}

void add_packet_flags(CommandLine& app, SimulateOptions& options) {
  app.add_option("--up-queue", options.up_queue,
                 "Of a host, before its way out; drops what is beyond (default: endless)")
      ->transform(size_value());
  app.add_option("--down-queue", options.down_queue, "Of a host, before its way in (default: endless)")
      ->transform(size_value());
  app.add_option("--loss", options.loss, "Share of packets lost at random, such as 0.001 (default 0)");
  add_named(app, "--congestion", options.congestion, kCongestionNames, "TCP's control, cubic or bbr (default cubic)");
  app.add_option("--packet", options.packet_bytes, "Most bytes that TCP hands over at once (default 16K)")
      ->transform(size_value());
  app.add_option("--warm-up", options.warm_up_calls, "Calls before the one that is timed (default 0)")
      ->check(CLI::Range(0, 1000));
}

std::optional<int> parse_simulate_options(const std::vector<std::string>& arguments, SimulateOptions& options) {
  CommandLine app("Runs a collective of many ranks over a simulated network.", "qccl plan simulate",
                  "COLLECTIVE --world N -b SIZE [OPTIONS]", kSimulateFooter);
  FaultFlags flags;
  add_named(app, "COLLECTIVE", options.collective, collective_names(), "all_reduce, broadcast, ...")->required();
  app.add_option("-b,--minbytes", options.min_bytes, "Size to start with; takes K, M or G")
      ->required()
      ->transform(size_value());
  app.add_option("-e,--maxbytes", options.max_bytes, "Size to end at (default: that of -b)")->transform(size_value());
  app.add_option("-f,--stepfactor", options.factor, "Factor between sizes (default 4)");
  add_layout_flags(app, options.layout);
  add_named(app, "--algorithm", options.algorithm, algorithm_names(), "Only this one (default: all there are)");
  app.add_option("--racks", options.racks, "Racks, with equally many hosts each (default 1)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--rack-rate", options.rack_rate, "Of a rack's uplink, up and down (default: no limit)")
      ->transform(rate_value());
  app.add_option("--connections", options.connections, "From a rank to each of another host (default 1)")
      ->check(CLI::Range(1, 64));
  app.add_option("--flow-rate", options.flow_rate, "Of a connection at most (default: no limit)")
      ->transform(rate_value());
  app.add_option("--buffer", options.buffer, "Most bytes on their way on a connection (default: no limit)")
      ->transform(size_value());
  app.add_option("--window", options.window, "Most encoded bytes on their way to a rank (default: by rate and latency)")
      ->transform(size_value());
  add_packet_flags(app, options);
  app.add_option("--jitter", options.jitter, "Up to this much more latency of a frame, at random (default 0us)")
      ->transform(time_value());
  app.add_option("--straggler", flags.stragglers, "RANK:FACTOR: sends and receives at the link's rate / FACTOR");
  app.add_option("--late", flags.late, "RANK@TIME: makes each call that much later than the others");
  app.add_option("--lose", flags.losses, "RANK@TIME: dies that long after the start of each operation");
  app.add_option("--stop", flags.stops, "RANK@TIME: goes silent then, which the others notice at --timeout");
  app.add_option("--timeout", options.timeout, "Deadline of each operation (default: none)")->transform(time_value());
  app.add_option("--seed", options.seed, "Of random choices (default 1)")->check(without_sign());
  app.add_option("--max-frames", options.max_frames, "Most frames of an operation (default 20M)")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, std::uint64_t>{{"K", 1000}, {"M", 1000000}}));
  app.callback([&] {
    complete(options);
    take_faults(flags, options);
  });
  return app.read(arguments);
}

// ---- The simulation

sim::FrameWork frame_work(const plan::LinkCost& link) { return {nanoseconds(link.frame_seconds), link.rank_rate}; }
// A latency includes the processors' work at both ends.
Nanoseconds travel(const plan::LinkCost& link, double latency) {
  return nanoseconds(std::max(0.0, latency - 2 * link.frame_seconds));
}
Nanoseconds travel(const plan::LinkCost& link) { return travel(link, link.latency); }

sim::SimulationOptions simulation_options(const SimulateOptions& options) {
  const PlanLayout& layout = options.layout;
  // Frames pass at what headers leave of a rate, packets with their headers.
  const double efficiency = options.has_packets() ? 1 : layout.links.wire_efficiency;
  const double rate = layout.line_rate * efficiency;
  sim::SimulationOptions simulation;
  simulation.ranks = layout.world;
  simulation.seed = options.seed;
  simulation.late = options.late;
  simulation.losses = options.losses;
  simulation.stops = options.stops;
  simulation.timeout = nanoseconds(options.timeout);
  simulation.warm_up_calls = options.warm_up_calls;
  simulation.window_bytes = options.layout.links.window_bytes;
  // Grants and other control frames come on top of the plan's.
  simulation.max_frames = 4 * options.max_frames;
  sim::NetworkOptions& links = simulation.links;
  links.bytes_per_second = rate;
  links.ingress_bytes_per_second = rate;
  simulation.processors = layout.links;
  links.slots = SIZE_MAX / 2;
  links.latency = travel(simulation.processors.wire);
  links.jitter = nanoseconds(options.jitter);
  links.burst_bytes = layout.links.burst_bytes;
  links.hosts = layout.hosts;
  links.local_latency = travel(simulation.processors.local);
  links.wire_work = frame_work(simulation.processors.wire);
  links.local_work = frame_work(simulation.processors.local);
  links.connections = options.connections;
  links.flow_bytes_per_second = options.flow_rate * efficiency;
  links.buffer_bytes = options.buffer;
  links.up_queue_bytes = options.up_queue;
  links.down_queue_bytes = options.down_queue;
  links.loss = options.loss;
  links.congestion = options.congestion.value_or(links.congestion);
  links.packet_bytes = options.packet_bytes.value_or(links.packet_bytes);
  links.sites = layout.sites_of_ranks();
  links.near_latency = travel(simulation.processors.wire, layout.links.near_latency);
  const int racks = layout.has_site_rate() ? layout.sites : options.racks;  // a site's line is a rack's uplink
  if (racks > 1) {
    const double uplink_rate = layout.has_site_rate() ? layout.links.site_rate : options.rack_rate;
    links.hosts_per_rack = (layout.host_count() + racks - 1) / racks;
    links.rack_bytes_per_second = uplink_rate * efficiency;
  }
  for (const auto& [host, factor] : layout.slow_hosts) links.slow_hosts.emplace_back(host, rate / factor);
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

std::vector<std::uint64_t> sizes_of(const SimulateOptions& options) {
  std::vector<std::uint64_t> sizes;
  auto bytes = static_cast<double>(options.min_bytes);
  do {
    sizes.push_back(static_cast<std::uint64_t>(bytes));
    bytes *= options.factor;
  } while (bytes > 0 && bytes <= static_cast<double>(options.max_bytes));
  return sizes;
}

std::string describe_packets(const SimulateOptions& options) {
  const auto queue = [](std::uint64_t bytes) { return bytes == 0 ? "endless" : size_text(bytes); };
  const sim::NetworkOptions links = simulation_options(options).links;
  const auto named =
      std::ranges::find(kCongestionNames, links.congestion, [](const auto& each) { return each.second; });
  return fmt::format("queues: {} up, {} down; {:.4g}% of packets lost; TCP {}, packets of up to {}",
                     queue(links.up_queue_bytes), queue(links.down_queue_bytes), 100 * links.loss, named->first,
                     size_text(links.packet_bytes));
}

template <class... Column>
std::string packet_columns(const Column&... columns) {
  std::string text;
  ((text += fmt::format(" {:>10}", columns)), ...);
  return text;
}

class Table {
 public:
  explicit Table(const SimulateOptions& options)
      : options_(options),
        sizes_(sizes_of(options)),
        algorithms_(options.algorithm ? std::vector{*options.algorithm} : plan::algorithms_of(options.collective)) {}

  int run() {
    fmt::print("# {}, compression {}, seed {}\n# {}\n", to_string(options_.collective),
               options_.layout.compression.to_string(), options_.seed, describe(options_.layout));
    if (options_.has_packets()) fmt::print("# {}\n", describe_packets(options_));
    fmt::print("#{:>11}   {:>12} {:>11} {:>7} {:>7} {:>7} {:>7} {:>13} {:>10} {:>10}{}\n", "size (B)", "algorithm",
               "time", "wire", "latency", "working", "waiting", "wire/rank (B)", "frames", "held (B)",
               options_.has_packets() ? packet_columns("dropped up", "down", "lost", "resent", "timeouts") : "");
    for (const std::uint64_t bytes : sizes_) {
      for (const Algorithm algorithm : algorithms_) {
        run_algorithm(bytes, algorithm);
        std::fflush(stdout);
      }
      if (has_inside(options_.layout, options_.collective) && !options_.algorithm) run_with_inside(bytes);
    }
    return exit_code_;
  }

 private:
  void run_algorithm(std::uint64_t bytes, Algorithm algorithm) {
    const plan::Request request = request_of(options_.layout, options_.collective, algorithm, bytes);
    const Algorithm chosen = plan::choose(selection_key(options_.layout, options_.collective, bytes),
                                          options_.layout.places(), options_.layout.links);
    const std::string name = fmt::format("{:>12}   {:>12}", bytes,
                                         fmt::format("{}{}", to_string(algorithm), algorithm == chosen ? "*" : " "));
    const double frames = frames_of(request);
    ++run_;
    if (frames > static_cast<double>(options_.max_frames)) {
      return fmt::print("{} {:>11} (needs {:.3g} frames; --max-frames)\n", name, "-", frames);
    }
    const auto result = simulate(
        request,
        fmt::format("[{}/{}] {} {}", run_, sizes_.size() * algorithms_.size(), size_text(bytes), to_string(algorithm)),
        frames);
    progress_.clear();
    print_row(name, result);
  }

  // Another library inside the hosts: what its ranks do between hosts, all at once, is simulated for those of one
  // place, which have a part of each host's line.
  void run_with_inside(std::uint64_t bytes) {
    SimulateOptions between = options_;
    between.layout = between_hosts(options_.layout, options_.collective);
    const std::uint64_t share = bytes / static_cast<std::uint64_t>(ranks_a_host(options_.layout));
    const Algorithm chosen = plan::choose(selection_key(between.layout, options_.collective, share),
                                          between.layout.places(), between.layout.links);
    const plan::Request request = request_of(between.layout, options_.collective, chosen, share);
    auto result = Table(between).simulate(request, fmt::format("{} with inside", size_text(bytes)), frames_of(request));
    progress_.clear();
    if (result.ok()) result->time += nanoseconds(inside_seconds(options_.layout, options_.collective, bytes));
    print_row(fmt::format("{:>12}   {:>12}", bytes, fmt::format("in+{} ", to_string(chosen))), result);
  }

  // `frames` of the plan; grants and other control frames come on top.
  Result<sim::SimulationResult> simulate(const plan::Request& request, const std::string& title, double frames) const {
    engine::ResolvedCall call;
    call.collective = request.collective;
    call.count = request.count;
    call.type = DataType::float32;
    call.compression = options_.layout.compression;
    call.algorithm = request.algorithm;
    if (plan::entry_of(call.algorithm).uses_hosts) call.hosts.assign(request.hosts.begin(), request.hosts.end());
    if (plan::uses_shares(call.collective, call.algorithm)) {
      call.shares.assign(request.shares.begin(), request.shares.end());
    }
    sim::SimulationOptions options = simulation_options(options_);
    options.on_progress = [&](std::uint64_t done) {
      const double part = std::min(0.99, static_cast<double>(done) / std::max(1.0, frames));
      progress_.show(fmt::format("{}: {:.0f}% of {:.2g} frames", title, 100 * part, frames));
    };
    options.on_progress(0);
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
    const sim::PacketCounts& packets = run.packets;
    fmt::print("{} {:>11} {:>7} {:>7} {:>7} {:>7} {:>13} {:>10} {:>10}{}\n", name,
               time_text(static_cast<double>(run.time.count()) * 1e-9), percent(run.delays.wire),
               percent(run.delays.latency), percent(run.delays.working), percent(run.delays.waiting),
               run.wire_bytes / static_cast<std::uint64_t>(options_.layout.world), run.frames, run.held_bytes,
               options_.has_packets() ? packet_columns(packets.dropped_up, packets.dropped_down, packets.lost,
                                                       packets.sent_again, packets.timeouts)
                                      : "");
    if (run.failed_ranks == 0) return;
    if (!options_.has_faults()) exit_code_ = kExitFailed;
    fmt::print("# failed on {} ranks, the last at that time: {}\n", run.failed_ranks, run.failure);
  }

  const SimulateOptions& options_;
  const std::vector<std::uint64_t> sizes_;
  const std::vector<Algorithm> algorithms_;
  const ProgressLine progress_;
  std::size_t run_ = 0;
  int exit_code_ = 0;
};

}  // namespace

int plan_simulate_main(const std::vector<std::string>& arguments) {
  SimulateOptions options;
  if (const auto code = parse_simulate_options(arguments, options)) return *code;
  return Table(options).run();
}

}  // namespace qccl::tools
