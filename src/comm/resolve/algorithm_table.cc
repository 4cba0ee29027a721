#include "comm/resolve/algorithm_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <numeric>

#include "base/text.h"
#include "codec/codec.h"
#include "codec/geometry.h"
#include "transport/pacing.h"

namespace qccl::comm {
namespace {

constexpr std::size_t kMaxFileBytes = 64 * 1024;  // with comments

Result<plan::Profile> read_profile(const std::string& path) {
  const auto fail = [&](const std::string& what) {
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("QCCL_PROFILE={}: {}; `qccl doctor --measure` writes one", path, what));
  };
  std::ifstream file(path);
  std::string text(kMaxFileBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (!file.eof() && file.fail())) return fail("can't be read");
  const auto bytes = static_cast<std::size_t>(file.gcount());
  auto profile = plan::parse_profile(std::string_view(text).substr(0, bytes));
  if (!profile.ok() && bytes < kMaxFileBytes) return fail(profile.error().message);
  if (bytes == kMaxFileBytes ||
      to_text(CostEnvironment{.profile = *profile}).size() + kMaxSitesBytes >= kMaxCostEnvironmentBytes) {
    return fail("has more lines than a profile can have");
  }
  return profile;
}

// Takes the first line off the text and returns the value after its key; empty if the line has another key.
std::string_view take_value(std::string_view& text, std::string_view key) {
  const auto end = text.find('\n');
  if (end == std::string_view::npos || !text.starts_with(key)) return {};
  const std::string_view value = text.substr(key.size(), end - key.size());
  text.remove_prefix(end + 1);
  return value;
}

}  // namespace

// ---- CostEnvironment

std::uint64_t CostEnvironment::window_bytes(double round_trip) const {
  return plan::window_of(line_rate(), round_trip, most_window_bytes);
}

plan::MachineModel CostEnvironment::links(std::string_view codec, const Distance& distance) const {
  plan::MachineModel links = plan::links_of(profile, codec);
  if (tcp_inside) links.local = profile.loopback;
  if (one_machine) {
    const double both_ends = 2 * links.wire.frame_seconds;  // part of the latency
    links.wire.latency = std::min(links.wire.latency, std::max(profile.loopback.latency, both_ends));
    links.hosts_per_machine = std::numeric_limits<int>::max();
    links.cores = shared_cores;
  }
  if (shared_cores > 0) links.wire.contention = plan::kContention;
  if (shared_cores > 0 && tcp_inside) links.local.contention = plan::kContention;
  if (paced_rate > 0) {
    links.wire = links.local;
    links.wire_rate = paced_rate;
    links.wire_efficiency = 1;  // pacing counts whole frames
  }
  links.near_latency = std::max(links.wire.latency, distance.near_round_trip / 2);
  links.wire.latency = std::max(links.wire.latency, distance.round_trip / 2);
  links.window_bytes = window_bytes(distance.round_trip);
  return links;
}

std::vector<int> CostEnvironment::layout(std::vector<int> hosts) const {
  if (paced_rate > 0) std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

Result<CostEnvironment> cost_environment_of(const Options& options) {
  CostEnvironment cost_environment;
  cost_environment.tcp_inside = options.transport == TransportChoice::tcp;
  cost_environment.slice_bytes = options.slice_bytes.value_or(kDefaultSliceBytes);
  cost_environment.device_slice_bytes = options.slice_bytes.value_or(kLongSliceBytes);
  cost_environment.most_window_bytes = options.window_bytes.value_or(plan::kMostWindowBytes);
  if (options.sites) {
    QCCL_TRY(parse_sites(*options.sites));
    cost_environment.sites = *options.sites;
  }
  if (options.link_rate) {
    QCCL_ASSIGN(const auto rate, parse_link_rate(*options.link_rate));
    cost_environment.paced_rate = static_cast<double>(rate);
  }
  cost_environment.rate_is_given = options.profile || options.link_rate;
  if (options.profile) {
    QCCL_ASSIGN(cost_environment.profile, read_profile(*options.profile));
  }
  return cost_environment;
}

std::string to_text(const CostEnvironment& cost_environment) {
  return fmt::format(
      "inside {}\npaced {}\nrate {}\nslice {}\ndevice slice {}\nwindow {}\ncores {}\nmachines {}\nsites {}\n{}",
      cost_environment.tcp_inside ? "tcp" : "shm", cost_environment.paced_rate,
      cost_environment.rate_is_given ? "given" : "learned", cost_environment.slice_bytes,
      cost_environment.device_slice_bytes, cost_environment.most_window_bytes, cost_environment.shared_cores,
      cost_environment.one_machine ? "one" : "several", cost_environment.sites,
      plan::to_text(cost_environment.profile));
}

Result<CostEnvironment> parse_cost_environment(std::string_view text) {
  const std::string_view inside = take_value(text, "inside ");
  const auto paced = parse_number<double>(take_value(text, "paced "));
  const std::string_view rate = take_value(text, "rate ");
  const auto slice = parse_number<std::size_t>(take_value(text, "slice "));
  const auto device_slice = parse_number<std::size_t>(take_value(text, "device slice "));
  const auto window = parse_number<std::uint64_t>(take_value(text, "window "));
  const auto cores = parse_number<int>(take_value(text, "cores "));
  const std::string_view machines = take_value(text, "machines ");
  const std::string sites(take_value(text, "sites "));
  auto profile = plan::parse_profile(text);
  const bool has_words = (inside == "tcp" || inside == "shm") && (rate == "given" || rate == "learned") &&
                         (machines == "one" || machines == "several") && parse_sites(sites).ok();
  const bool has_slices = slice && device_slice && *slice > 0 && *device_slice > 0;
  const bool has_numbers = paced && has_slices && window && cores && *paced >= 0 && *cores >= 0;
  if (!has_words || !has_numbers || !profile.ok()) {
    return Failure(ErrorKind::corrupt_data, "rank 0's profile can't be read");
  }
  return CostEnvironment{.profile = std::move(*profile),
                         .tcp_inside = inside == "tcp",
                         .paced_rate = *paced,
                         .slice_bytes = *slice,
                         .device_slice_bytes = *device_slice,
                         .most_window_bytes = *window,
                         .shared_cores = *cores,
                         .one_machine = machines == "one",
                         .sites = sites,
                         .rate_is_given = rate == "given"};
}

// ---- AlgorithmTable

AlgorithmTable::AlgorithmTable(const CostEnvironment& cost_environment, const std::vector<int>& hosts,
                               Distance distance)
    : cost_environment_(cost_environment),
      distance_(std::move(distance)),
      layout_(cost_environment.layout(hosts), distance_.sites) {
  const auto& layout = layout_.hosts;
  const bool has_several = std::ranges::adjacent_find(layout, std::not_equal_to<>()) != layout.end();
  cost_environment_.one_machine &= has_several;  // calls inside a host have prices that were measured there
}

plan::SelectionKey AlgorithmTable::selection_key(const CallClass& call) const {
  const auto codec = make_codec(call.compression).take_or_throw();
  plan::SelectionKey key{.collective = call.collective,
                         .elements = call.elements,
                         .type = call.type,
                         .compressed = codec != nullptr,
                         .slice_elements = slice_elements(codec.get(), call.type, cost_environment_.slice_bytes)};
  if (codec == nullptr) return key;
  key.bucket_size = codec->bucket_size();
  key.encoded_bytes =
      static_cast<double>(codec->max_encoded_bytes(key.slice_elements)) / static_cast<double>(key.slice_elements);
  return key;
}

// On a short line the ranks' own delays are as long as the round trip: a small window would wait for them.
void AlgorithmTable::use_line_rate(double rate) {
  constexpr std::uint64_t kLeast = std::uint64_t{4} << 20;
  least_window_ = std::min(window_bytes(), kLeast);
  cost_environment_.profile.wire_rate = rate / plan::kTcpEfficiency;
  chosen_.clear();
  goes_by_sites_.clear();
}

Algorithm AlgorithmTable::choose(const CallClass& call) {
  return chosen_.find_or_make(call, [&] { return plan::choose(selection_key(call), layout_, links(call)); });
}

bool AlgorithmTable::goes_by_sites(const CallClass& call) {
  if (layout_.sites.empty()) return false;
  return goes_by_sites_.find_or_make(
      call, [&] { return &plan::hierarchy_of(selection_key(call), layout_, links(call)) == &layout_.sites; });
}

double AlgorithmTable::predict(const CallClass& call, Algorithm algorithm) const {
  return plan::predict(selection_key(call), algorithm, layout_, links(call)).seconds;
}

double AlgorithmTable::predict_message(double bytes, int from, int to) const {
  const auto host_of = [this](int rank) { return layout_.hosts[static_cast<std::size_t>(rank)]; };
  return plan::message_seconds(bytes, host_of(from) == host_of(to), cost_environment_.links("none", distance_));
}

plan::Choice AlgorithmTable::explain(const CallClass& call) const {
  return plan::explain(selection_key(call), layout_, links(call));
}

}  // namespace qccl::comm
