#include "job/job_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/digest/digest.h"
#include "base/log.h"
#include "base/text.h"

namespace qccl::comm {

namespace {

// "rank 3: group 'world' has ranks 100.2 ms apart (a round trip) in 2 sites: a window of 15625000 bytes"
void log_distance(const GroupIdentity& group, const Distance& distance, std::uint64_t window) {
  const std::set<int> sites(distance.sites.begin(), distance.sites.end());
  const std::string where = sites.empty() ? "" : fmt::format(" in {} sites", sites.size());
  qccl::log(LogLevel::info,
            fmt::format("rank {}: group '{}' has ranks {:.1f} ms apart (a round trip){}: a window of {} bytes",
                        group.world_rank(), group.name, distance.round_trip * 1e3, where, window));
}

}  // namespace

// Runs a call of the library's own.
Status JobGroups::run(const GroupIdentity& group, const CollectiveCall& call, std::optional<Nanoseconds> timeout) {
  GroupDefaults defaults;
  defaults.slice_bytes = slice_bytes_;
  QCCL_ASSIGN(const engine::ResolvedCall resolved, resolve(call, group.size(), defaults));
  engine::CallArguments arguments;
  arguments.group = group.id;
  arguments.plan =
      std::make_shared<const engine::ExecutablePlan>(resolved, group.size(), GroupRank(group.rank), nullptr);
  arguments.input = static_cast<const std::byte*>(call.input);
  arguments.output = static_cast<std::byte*>(call.output);
  arguments.timeout = timeout.value_or(timeout_);
  arguments.is_logged = false;
  const auto work = driver_.run(std::move(arguments));
  if (work != nullptr && work->failure()) return Failure(*work->failure());
  return {};
}

// A call's smallest values of all members. The smallest complement is that of the largest. The name is for processes
// that do not make this group, but may wait for a member in another one.
struct JobGroups::GroupVote {
  explicit GroupVote(const GroupIdentity& group) : words(kNearest + group.ranks.size(), UINT64_MAX) {
    std::string name = group.name.substr(0, kNameBytes);
    name.resize(kNameBytes, '\0');
    std::memcpy(&words[kName], name.data(), kNameBytes);
  }
  // The name in another rank's call; empty if it is no such call.
  static std::string name_in(const wire::FrameHeader& header, ConstBytes payload) {
    const bool is_opening = header.kind == wire::FrameKind::data && header.sequence == 1;
    if (!is_opening || payload.size() < kNearest * sizeof(std::uint64_t)) return {};
    const auto name = as_text(payload.subspan(kName * sizeof(std::uint64_t), kNameBytes));
    return printable(name.substr(0, name.find('\0')));
  }

  static constexpr std::size_t kNameBytes = 64;
  enum Index : std::size_t {
    kBoard,
    kDigest,
    kDigestComplement,
    kLongestComplement,
    kNearComplement,
    kName,
    kNearest = kName + kNameBytes / sizeof(std::uint64_t)
  };
  double seconds(Index complement) const { return static_cast<double>(~words[complement]) * 1e-6; }
  void set_seconds(Index complement, double value) { words[complement] = ~static_cast<std::uint64_t>(value * 1e6); }
  // Each member's nearest, by group rank.
  std::span<std::uint64_t> nearest() { return std::span(words).subspan(kNearest); }

  std::vector<std::uint64_t> words;
};

// The members use the board if all of them have a cell. They all have the same cost environment if its smallest digest
// and its smallest complement belong together. This call is also the barrier after which every member has opened the
// group.
Status JobGroups::agree(const GroupIdentity& group, GroupVote& vote, std::optional<Nanoseconds> timeout) {
  const std::uint64_t own = digest(to_text(cost_environment_));
  vote.words[GroupVote::kDigest] = own;
  vote.words[GroupVote::kDigestComplement] = ~own;
  const CallOptions least{.op = ReduceOp::min, .algorithm = Algorithm::one_shot};
  std::uint64_t* const words = vote.words.data();
  QCCL_TRY(run(group, {Collective::all_reduce, words, words, vote.words.size(), DataType::uint64, least}, timeout));
  const bool is_same = words[GroupVote::kDigest] == ~words[GroupVote::kDigestComplement];
  return is_same ? Status() : adopt_cost_environment(group, timeout);
}

// In the thread that requests the stop. Without memory the opening goes on to its end.
void JobGroups::stop_opening(const GroupIdentity& group) {
  try {
    ErrorInfo failure = group.failure(ErrorKind::aborted, "a rank stopped the making of the group");
    driver_.with_engine([&](engine::Engine& engine) { engine.groups().fail(group.id, std::move(failure)); });
  } catch (const std::bad_alloc&) {
    qccl::log(LogLevel::warning, "no memory to stop the making of a group");
  }
}

// Why not all members made the group, if a frame of another group that is not made here says so: a member makes that
// one, and waits for this rank there.
ErrorInfo JobGroups::explain(const GroupIdentity& group, ErrorInfo failure) {
  const bool is_late = failure.kind == ErrorKind::deadline_exceeded;
  if (!is_late && failure.kind != ErrorKind::peer_lost) return failure;
  driver_.with_engine([&](engine::Engine& engine) {
    const engine::GroupTable& groups = engine.group_table();
    std::string other;
    int member = -1;
    groups.visit_stored([&](const engine::Frame& stored) {
      if (groups.find(stored.header().group) != nullptr || !other.empty()) return;
      if (std::ranges::find(group.ranks, stored.peer().value()) == group.ranks.end()) return;
      other = GroupVote::name_in(stored.header(), stored.payload());
      member = stored.peer().value();
    });
    if (other.empty()) return;
    const std::string which =
        other == group.name ? "another group of the same name, with other members or at another repetition of the name"
                            : fmt::format("group '{}'", other);
    const std::string reason = fmt::format(
        "rank {} did not make this group but {}, and waited for this rank there: make the same groups under the same "
        "names in the same order on all members (torch: call new_group() equally often on each, because its names "
        "count "
        "the groups made before)",
        member, which);
    failure.message = is_late ? group.failure(failure.kind, "the deadline passed: " + reason).message
                              : failure.message + "; " + reason;
    failure.peer = member;
  });
  return failure;
}

Result<GroupAgreement> JobGroups::open(const GroupIdentity& group, const GroupOrigin& origin) {
  Status opened;
  GroupVote vote(group);
  const std::vector<int> own_sites = parse_sites(cost_environment_.sites).take_or_throw();
  driver_.with_engine([&](engine::Engine& engine) {
    opened = engine.groups().open(group.id, group.name, group.ranks, origin.parent);
    vote.words[GroupVote::kBoard] = opened.ok() && engine.groups().prepare_board(group.id) ? 1 : 0;
    const RoundTrips own = measured(engine.transport(), group, own_sites);
    vote.set_seconds(GroupVote::kLongestComplement, own.longest);
    vote.set_seconds(GroupVote::kNearComplement, own.longest_near);
    vote.nearest()[static_cast<std::size_t>(group.rank)] = static_cast<std::uint64_t>(own.nearest);
  });
  if (!opened.ok()) return opened.failure();
  const std::stop_callback on_stop(origin.stop, [&] { stop_opening(group); });
  if (Status agreed = agree(group, vote, origin.timeout); !agreed.ok()) {
    if (origin.may_be_lost) return GroupAgreement{};
    Failure failure(explain(group, agreed.error()));
    close(group.id);
    return failure;
  }
  const GroupAgreement result{.has_board = vote.words[GroupVote::kBoard] == 1,
                              .distance = {.round_trip = vote.seconds(GroupVote::kLongestComplement),
                                           .near_round_trip = vote.seconds(GroupVote::kNearComplement),
                                           .sites = sites_of(group, vote.nearest())}};
  const std::uint64_t window = cost_environment_.window_bytes(result.distance.round_trip);
  driver_.with_engine([&](engine::Engine& engine) {
    engine.groups().end_opening(group.id);
    engine.groups().use_board(group.id, result.has_board);
    if (!window_bytes_) {  // of messages, for which no rate is learned
      window_bytes_ = plan::window_of(cost_environment_.line_rate(0), result.distance.round_trip,
                                      cost_environment_.most_window_bytes);
      slice_bytes_ = cost_environment_.slice_bytes;
    }
    engine.use_sizes(slice_bytes_, *window_bytes_);
  });
  if (window > 0) log_distance(group, result.distance, window);
  return result;
}

std::vector<int> JobGroups::sites_of(const GroupIdentity& group, std::span<const std::uint64_t> nearest) const {
  const std::vector<int> all = parse_sites(cost_environment_.sites).take_or_throw();
  if (all.empty()) return unless_one(sites_of_nearest(nearest));
  std::vector<int> sites;
  for (const int rank : group.ranks) sites.push_back(all[static_cast<std::size_t>(rank)]);
  return unless_one(std::move(sites));
}

Status JobGroups::adopt_cost_environment(const GroupIdentity& group, std::optional<Nanoseconds> timeout) {
  const std::string own = to_text(cost_environment_);
  std::string text = own;
  text.resize(kMaxCostEnvironmentBytes, '\0');
  const CallOptions options{.algorithm = Algorithm::one_shot};
  QCCL_TRY(
      run(group, {Collective::broadcast, text.data(), text.data(), text.size(), DataType::uint8, options}, timeout));
  text.resize(text.find('\0'));
  if (group.rank == 0 || text == own) return {};
  QCCL_ASSIGN(CostEnvironment cost_environment, parse_cost_environment(text));
  // Slices may differ without a reason to warn: hosts may have different numbers of cores.
  cost_environment_.slice_bytes = cost_environment.slice_bytes;
  cost_environment_.device_slice_bytes = cost_environment.device_slice_bytes;
  if (text == to_text(cost_environment_)) return {};
  qccl::log(
      LogLevel::warning,
      fmt::format("rank {}: QCCL_PROFILE, QCCL_TRANSPORT, QCCL_LINK_RATE or QCCL_SITES differs from rank 0's; rank 0's "
                  "settings choose the algorithms",
                  group.world_rank()));
  cost_environment_ = std::move(cost_environment);
  return {};
}

}  // namespace qccl::comm
