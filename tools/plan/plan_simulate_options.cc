#include "tools/plan/plan_simulate_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "tools/commands.h"
#include "tools/flag_values.h"

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

An algorithm that moves more than --max-frames frames is not run. '*' marks the chosen algorithm.

--straggler, --late, --lose and --stop may be given several times, for several ranks.

Exit code: 0; 1 if an operation failed although no rank was to die or stop; 2 for wrong flags.

Examples:
  qccl plan simulate --world 512 --hosts 64 --rate 10gbit --latency 50us all_reduce -b 1K -e 256M
  qccl plan simulate --hosts 4x8 --rate 1gbit all_reduce -b 64M --compression minmax:bits=4
  qccl plan simulate --world 8 --cores 2 --hosts-per-machine 4 --rate 1gbit --burst 64K all_reduce -b 1M
  qccl plan simulate --world 64 --racks 4 --rack-rate 20gbit all_to_all -b 1M -e 64M -f 8
  qccl plan simulate --world 16 all_reduce -b 16M --straggler 3:10 --jitter 20us --seed 7
  qccl plan simulate --world 16 all_reduce -b 16M --late 3@5ms --late 4@1ms
  qccl plan simulate --world 16 all_reduce -b 16M --lose 3@2ms
  qccl plan simulate --world 16 all_reduce -b 16M --stop 3@2ms --timeout 1s
)";

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

void complete(SimulateOptions& options) {
  complete(options.layout, options.collective);
  options.max_bytes = std::max(options.max_bytes, options.min_bytes);
  if (options.max_bytes > 1ull << 43) refuse("sizes are up to 8 TiB");
  if (options.factor < 1.01 || (options.min_bytes == 0 && options.max_bytes > 0)) {
    refuse("-f 1 or a size of 0 never gets from -b to -e");
  }
  if (options.racks > options.layout.host_count()) refuse("there are more racks than hosts");
  check_algorithm(options.collective, options.algorithm);
}

}  // namespace

std::optional<int> parse_simulate_options(const std::vector<std::string>& arguments, SimulateOptions& options) {
  CLI::App app("Runs a collective of many ranks over a simulated network.", "qccl plan simulate");
  set_usage(app, "qccl plan simulate COLLECTIVE --world N -b SIZE [OPTIONS]");
  app.footer(kSimulateFooter);
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
  return parse(app, arguments, kExitUsage);
}

Nanoseconds nanoseconds(double seconds) { return Nanoseconds(std::llround(seconds * 1e9)); }

}  // namespace qccl::tools
