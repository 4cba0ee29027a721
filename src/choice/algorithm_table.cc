#include "choice/algorithm_table.h"

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

// The lines of an environment: a name, a blank and a value. LineWriter and LineReader have the same members.
struct Words {
  std::string_view no, yes;
};

class LineWriter {
 public:
  template <class T>
  void number(std::string_view name, const T& value, T /*least*/) {
    text += fmt::format("{} {}\n", name, value);
  }
  void choice(std::string_view name, bool value, const Words& words) { line(name, value ? words.yes : words.no); }
  void line(std::string_view name, std::string_view value) { text += fmt::format("{} {}\n", name, value); }

  std::string text;
};

// Takes lines off the front of the text, as long as it is good.
class LineReader {
 public:
  explicit LineReader(std::string_view text) : text_(text) {}

  template <class T>
  void number(std::string_view name, T& value, T least) {
    const auto parsed = parse_number<T>(take(name));
    is_good_ &= parsed && *parsed >= least;
    if (is_good_) value = *parsed;
  }
  void choice(std::string_view name, bool& value, const Words& words) {
    const std::string_view word = take(name);
    value = word == words.yes;
    is_good_ &= value || word == words.no;
  }
  void line(std::string_view name, std::string& value) { value = take(name); }

  bool is_good() const { return is_good_; }
  std::string_view rest() const { return text_; }

 private:
  std::string_view take(std::string_view name) {
    const auto end = text_.find('\n');
    is_good_ &= end != std::string_view::npos && text_.starts_with(name) && text_.substr(name.size()).starts_with(' ');
    if (!is_good_) return {};
    const std::string_view value = text_.substr(name.size() + 1, end - name.size() - 1);
    text_.remove_prefix(end + 1);
    return value;
  }

  std::string_view text_;
  bool is_good_ = true;
};

// All fields but the profile, whose lines follow.
void visit(auto& lines, auto& environment) {
  lines.choice("inside", environment.tcp_inside, {.no = "shm", .yes = "tcp"});
  lines.number("paced", environment.paced_rate, 0.0);
  lines.choice("rate", environment.rate_is_given, {.no = "learned", .yes = "given"});
  lines.number("slice", environment.slice_bytes, std::size_t{1});
  lines.number("device slice", environment.device_slice_bytes, std::size_t{1});
  lines.number("window", environment.most_window_bytes, std::uint64_t{0});
  lines.number("cores", environment.shared_cores, 0);
  lines.choice("machines", environment.one_machine, {.no = "several", .yes = "one"});
  lines.line("sites", environment.sites);
}

}  // namespace

// ---- CostEnvironment

double CostEnvironment::line_rate(double round_trip) const {
  constexpr double kUnknown = 125e6;
  if (paced_rate > 0) return paced_rate;
  const bool is_known = rate_is_given || round_trip < plan::kDistantRoundTrip;
  return is_known ? profile.wire_rate : std::min(kUnknown, profile.wire_rate);
}

std::uint64_t CostEnvironment::window_bytes(double round_trip) const {
  return plan::window_of(line_rate(round_trip), round_trip, most_window_bytes);
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
  links.wire_rate = line_rate(distance.round_trip);
  if (paced_rate > 0) {
    links.wire = links.local;
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
  LineWriter lines;
  visit(lines, cost_environment);
  return lines.text + plan::to_text(cost_environment.profile);
}

Result<CostEnvironment> parse_cost_environment(std::string_view text) {
  CostEnvironment cost_environment;
  LineReader lines(text);
  visit(lines, cost_environment);
  auto profile = plan::parse_profile(lines.rest());
  if (!lines.is_good() || !parse_sites(cost_environment.sites).ok() || !profile.ok()) {
    return Failure(ErrorKind::corrupt_data, "rank 0's profile can't be read");
  }
  cost_environment.profile = std::move(*profile);
  return cost_environment;
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
  const std::size_t most = plan::most_slice_bytes(window_bytes(), static_cast<int>(layout_.hosts.size()));
  plan::SelectionKey key{.collective = call.collective,
                         .elements = call.elements,
                         .type = call.type,
                         .compressed = codec != nullptr,
                         .slice_elements = slice_elements(codec.get(), call.type, cost_environment_.slice_bytes, most)};
  if (codec == nullptr) return key;
  key.bucket_size = codec->bucket_size();
  key.encoded_bytes = expected_element_bytes(codec.get(), call.type, key.slice_elements);
  return key;
}

// On a line that loses packets, streams wait for those that are sent again: what others send meanwhile needs room.
void AlgorithmTable::use_lines(const AgreedLines& lines) {
  constexpr std::uint64_t kLossy = std::uint64_t{4} << 20;
  least_window_ = lines.loses ? std::min(kLossy, cost_environment_.most_window_bytes) : 0;
  cost_environment_.profile.wire_rate = lines.rate / plan::kTcpEfficiency;
  cost_environment_.rate_is_given = true;
  shares_rate_ = lines.shares_rate / plan::kTcpEfficiency;
  window_rate_ = lines.window_rate / plan::kTcpEfficiency;
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
