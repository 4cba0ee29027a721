#include "tools/plan/plan_layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/text.h"
#include "codec/geometry.h"
#include "plan/cost/shares.h"
#include "tools/command_line.h"

namespace qccl::tools {
namespace {

// The input bytes of a slice, the library's default (QCCL_SLICE_BYTES).
constexpr std::size_t kLayoutSliceBytes = 128 * 1024;

// A speed that a flag gives in place of the profile's.
struct SpeedFlag {
  const char* name;
  double& (*field)(plan::MachineModel&);
  CLI::Validator (*unit)();
  const char* description;
};

constexpr SpeedFlag kSpeedFlags[] = {
    {"--rate", [](plan::MachineModel& links) -> double& { return links.wire_rate; }, rate_value,
     "Of a host's link, out and in (default: the profile's)"},
    {"--latency", [](plan::MachineModel& links) -> double& { return links.wire.latency; }, time_value,
     "From host to host (default: the profile's)"},
    {"--near-latency", [](plan::MachineModel& links) -> double& { return links.near_latency; }, time_value,
     "Inside a site; --latency is then that between sites (default: the profile's)"},
    {"--site-rate", [](plan::MachineModel& links) -> double& { return links.site_rate; }, rate_value,
     "Of a site's line to other sites, out and in (default: the profile's, which has no limit)"},
    {"--burst", [](plan::MachineModel& links) -> double& { return links.burst_bytes; }, size_value,
     "Bytes that an idle link passes at once, like a token bucket (default 0)"},
    {"--local-rate", [](plan::MachineModel& links) -> double& { return links.local.rank_rate; }, rate_value,
     "Of a rank to others of its host (default: the profile's)"},
    {"--inside-rate", [](plan::MachineModel& links) -> double& { return links.inside.rank_rate; }, rate_value,
     "Of a rank to others of its host by another library, each way (default: the profile's, which has none)"},
    {"--local-latency", [](plan::MachineModel& links) -> double& { return links.local.latency; }, time_value,
     "Inside a host (default: the profile's)"},
};

// Returns 0 unless the text is a number of at least 1.
int number(std::string_view text) { return std::max(0, parse_number<int>(text).value_or(0)); }

// Places the ranks on the hosts in order; if they do not divide evenly, some hosts get one more.
std::vector<int> spread(int world, int hosts) {
  std::vector<int> host_of;
  for (int rank = 0; rank < world; ++rank) {
    host_of.push_back(static_cast<int>(static_cast<std::int64_t>(rank) * hosts / world));
  }
  return host_of;
}

void take_hosts(PlanLayout& layout) {
  const std::string& word = layout.hosts_flag;
  const std::size_t cross = word.find('x');
  const bool has_each = cross != std::string::npos;
  const int hosts = number(word.substr(0, cross));
  const int each = has_each ? number(word.substr(cross + 1)) : 0;
  if (!word.empty() && (hosts == 0 || (has_each && each == 0))) {
    refuse(fmt::format("--hosts {} is neither a number of hosts nor hosts x ranks, such as 2x4", word));
  }
  if (layout.world == 0) layout.world = hosts * each;
  if (layout.world == 0) refuse("--world, the number of ranks, is missing");
  if (has_each && hosts * each != layout.world) {
    refuse(fmt::format("--hosts {} are {} ranks, not {}", word, hosts * each, layout.world));
  }
  const int count = hosts > 0 ? hosts : layout.world;
  if (count > layout.world) refuse(fmt::format("{} hosts are more than {} ranks", count, layout.world));
  layout.hosts = spread(layout.world, count);
  if (count % layout.sites != 0) refuse(fmt::format("{} hosts can't be divided among {} sites", count, layout.sites));
}

std::uint64_t slice_length(const PlanLayout& layout) {
  const std::size_t most = plan::most_slice_bytes(layout.links.window_bytes, layout.world);
  return slice_elements(layout.codec.get(), DataType::float32, kLayoutSliceBytes, most);
}

// The most bytes that a slice has on the wire.
std::uint64_t encoded_slice_bytes(const PlanLayout& layout) {
  const std::uint64_t elements = slice_length(layout);
  return layout.codec == nullptr ? elements * sizeof(float) : layout.codec->max_encoded_bytes(elements);
}

void take_profile(PlanLayout& layout) {
  if (!layout.profile_file.empty()) {
    std::ifstream file(layout.profile_file);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) refuse(fmt::format("--profile {} can't be read", layout.profile_file));
    auto profile = plan::parse_profile(text);
    if (!profile.ok()) refuse(fmt::format("--profile {}: {}", layout.profile_file, profile.error().message));
    layout.profile = *profile;
  }
}

// The lines of all hosts. The library would know the slowest one's rate, and make shares of all.
void take_slow_hosts(PlanLayout& layout) {
  plan::MachineModel& links = layout.links;
  plan::HostLines lines{layout.hosts, std::vector(static_cast<std::size_t>(layout.host_count()), links.wire_rate)};
  for (const std::string& word : layout.slow_host_flags) {
    const std::size_t colon = std::min(word.find(':'), word.size() - 1);
    const int host = parse_number<int>(word.substr(0, colon)).value_or(-1);
    const double factor = parse_number<double>(word.substr(colon + 1)).value_or(0);
    if (host < 0 || host >= layout.host_count() || factor < 1) {
      refuse(fmt::format("--slow-host {} is not HOST:FACTOR, such as 3:2", word));
    }
    layout.slow_hosts.emplace_back(host, factor);
    lines.rates[static_cast<std::size_t>(host)] = links.wire_rate / factor;
  }
  links.wire_rate = std::ranges::min(lines.rates);
  if (!layout.has_equal_shares) layout.shares = plan::shares_of(lines, {});
  if (!layout.shares.empty()) links.shares_rate = plan::equivalent_rate(lines, layout.shares);
}

void take_links(PlanLayout& layout) {
  plan::MachineModel& links = layout.links;
  links = plan::links_of(layout.profile, layout.compression.to_string());
  for (const auto& [field, value] : layout.given) field(links) = value;
  layout.line_rate = links.wire_rate;
  if (links.wire_rate <= 0 || links.local.rank_rate <= 0) refuse("a rate of 0 carries nothing");
  if (links.wire.latency < 0 || links.near_latency < 0 || links.local.latency < 0) refuse("a latency is not below 0");
  take_slow_hosts(layout);
  const int hosts = layout.host_count();
  const double known_rate = std::max(links.wire_rate, links.shares_rate);
  if (hosts > 1) links.window_bytes = plan::window_of(known_rate, 2 * links.wire.latency, plan::kMostWindowBytes);
  links.cores = layout.cores;
  links.hosts_per_machine = layout.hosts_per_machine;
  const int ranks_per_machine = layout.world * std::min(layout.hosts_per_machine, hosts) / std::max(1, hosts);
  if (layout.cores > 0 && ranks_per_machine > layout.cores) links.wire.contention = plan::kContention;
}

}  // namespace

std::vector<int> PlanLayout::sites_of_ranks() const {
  std::vector<int> found;
  for (std::size_t rank = 0; rank < hosts.size() && sites > 1; ++rank) {
    found.push_back(hosts[rank] * sites / host_count());
  }
  return found;
}

void add_layout_flags(CLI::App& app, PlanLayout& layout) {
  app.add_option("--world", layout.world, "Ranks")->check(CLI::Range(1, 4096));
  app.add_option("--hosts", layout.hosts_flag,
                 "Hosts, as a number or with ranks each: 64, 2x4 (default: one for each rank)");
  app.add_option("--sites", layout.sites, "Places far apart, with equally many hosts each (default 1)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--profile", layout.profile_file, "File with the speeds of links and processors (default: built in)");
  for (const SpeedFlag& flag : kSpeedFlags) {
    const auto take = [&layout, field = flag.field](double value) { layout.given.emplace_back(field, value); };
    app.add_option_function<double>(flag.name, take, flag.description)->transform(flag.unit());
  }
  app.add_option("--slow-host", layout.slow_host_flags,
                 "HOST:FACTOR: the rate of its link is that of the others / FACTOR; may be given several times");
  app.add_flag("--equal-shares", layout.has_equal_shares,
               "Owners' shares of an all_reduce (sra) are equal although hosts are slow");
  app.add_option("--cores", layout.cores, "Of a machine, which its ranks share (default: each rank has its own)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--hosts-per-machine", layout.hosts_per_machine, "Virtual hosts that share its cores (default 1)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--compression", layout.compression_flag, "none, cast:type=bf16, minmax:bits=4,bucket_size=1024");
}

void refuse(const std::string& text) { throw ValueError(text, kExitUsage); }

void complete(PlanLayout& layout, Collective collective) {
  try {
    layout.compression = Compression::parse(layout.compression_flag);
    layout.codec = make_codec(layout.compression).take_or_throw();
  } catch (const Error& error) {
    refuse(error.what());
  }
  take_profile(layout);
  take_hosts(layout);
  take_links(layout);
  if (layout.codec != nullptr && !is_compressible(collective))
    refuse(fmt::format("{} can't be compressed", to_string(collective)));
}

void check_algorithm(Collective collective, std::optional<Algorithm> algorithm) {
  if (!algorithm || plan::has_algorithm(collective, *algorithm)) return;
  refuse(fmt::format("{} has no algorithm {}", to_string(collective), to_string(*algorithm)));
}

plan::SelectionKey selection_key(const PlanLayout& layout, Collective collective, std::uint64_t bytes) {
  plan::SelectionKey key{
      .collective = collective, .elements = bytes / sizeof(float), .slice_elements = slice_length(layout)};
  if (layout.codec == nullptr) return key;
  key.compressed = true;
  key.bucket_size = layout.codec->bucket_size();
  key.encoded_bytes = expected_element_bytes(layout.codec.get(), DataType::float32, key.slice_elements);
  return key;
}

plan::Request request_of(const PlanLayout& layout, Collective collective, Algorithm algorithm, std::uint64_t bytes) {
  const plan::SelectionKey key = selection_key(layout, collective, bytes);
  const auto world = static_cast<std::uint64_t>(layout.world);
  return {.collective = collective,
          .algorithm = algorithm,
          .world = layout.world,
          .count = collective == Collective::barrier ? 0
                   : has_pieces(collective)          ? key.elements / world
                                                     : key.elements,
          .bucket_size = key.bucket_size,
          .slice_elements = key.slice_elements,
          .compressed = key.compressed,
          .lanes = plan::lanes_of_window(layout.links.window_bytes, layout.world, encoded_slice_bytes(layout)),
          .hosts = plan::hierarchy_of(key, layout.places(), layout.links),
          .shares = layout.shares};
}

std::string describe(const PlanLayout& layout) {
  std::string slow;
  for (const auto& [host, factor] : layout.slow_hosts) {
    slow += fmt::format(", {:.4g} Gbit/s to host {}", layout.line_rate / factor * 8e-9, host);
  }
  if (!layout.shares.empty()) slow += fmt::format(", owners' shares [{}] %", fmt::join(layout.shares, " "));
  const std::string near =
      layout.sites == 1 ? ""
                        : fmt::format(" in {} sites, {} in a site", layout.sites, time_text(layout.links.near_latency));
  const std::string line =
      layout.has_site_rate() ? fmt::format(", {:.4g} Gbit/s between sites", layout.links.site_rate * 8e-9) : "";
  return fmt::format("{} ranks on {} hosts{}, {:.4g} Gbit/s and {} between them{}{}, {:.4g} Gbit/s and {} inside",
                     layout.world, layout.host_count(), near, layout.line_rate * 8e-9,
                     time_text(layout.links.wire.latency), line, slow, layout.links.local.rank_rate * 8e-9,
                     time_text(layout.links.local.latency));
}

}  // namespace qccl::tools
