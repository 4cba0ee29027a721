#include "comm/job_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/digest/digest.h"
#include "base/log.h"

namespace qccl::comm {

ErrorInfo GroupIdentity::failure(ErrorKind kind, const std::string& what) const {
  return {.kind = kind,
          .message = fmt::format("QCCL rank {}, group '{}': {}", world_rank(), name, what),
          .rank = world_rank()};
}

Error GroupIdentity::invalid_argument(const std::string& operation, const std::string& what) const {
  ErrorInfo info = failure(ErrorKind::invalid_argument, fmt::format("{}: {}", operation, what));
  info.operation = operation;
  return Error(std::move(info));
}

double longest_round_trip(const Transport& transport, const GroupIdentity& group) {
  Nanoseconds longest{0};
  for (const int rank : group.ranks) {
    if (rank != group.world_rank()) longest = std::max(longest, transport.round_trip(WorldRank(rank)));
  }
  return std::chrono::duration<double>(longest).count();
}

// Runs a call of the library's own.
Status JobGroups::run(const GroupIdentity& group, const CollectiveCall& call) {
  GroupDefaults defaults;
  defaults.slice_bytes = slice_bytes_;
  QCCL_ASSIGN(const engine::ResolvedCall resolved, resolve(call, group.size(), defaults));
  engine::CallArguments arguments;
  arguments.group = group.id;
  arguments.plan =
      std::make_shared<const engine::ExecutablePlan>(resolved, group.size(), GroupRank(group.rank), nullptr);
  arguments.input = static_cast<const std::byte*>(call.input);
  arguments.output = static_cast<std::byte*>(call.output);
  arguments.timeout = timeout_;
  arguments.is_logged = false;
  const auto work = driver_.run(std::move(arguments));
  if (work != nullptr && work->failure()) return Failure(*work->failure());
  return {};
}

Result<GroupAgreement> JobGroups::open(const GroupIdentity& group, std::optional<std::uint64_t> parent) {
  Status opened;
  bool has_cell = false;
  std::uint64_t round_trip = 0;  // microseconds
  driver_.with_engine([&](engine::Engine& engine) {
    opened = engine.groups().open(group.id, group.name, group.ranks, parent);
    has_cell = opened.ok() && engine.groups().prepare_board(group.id);
    round_trip = static_cast<std::uint64_t>(longest_round_trip(engine.parts().transport, group) * 1e6);
  });
  if (!opened.ok()) return opened.failure();

  // The members use the board if all of them have a cell. They all have the same digest if the smallest digest and the
  // smallest complement belong together. The smallest complement of a round trip is that of the longest. This call is
  // also the barrier after which every member has opened the group.
  struct Agreement {
    std::uint64_t board, digest, complement, round_trip_complement;
  };
  const std::uint64_t own = digest(to_text(cost_environment_));
  Agreement agreement{has_cell ? 1u : 0u, own, ~own, ~round_trip};
  const CallOptions least{.op = ReduceOp::min, .algorithm = Algorithm::one_shot};
  Status agreed = run(group, {Collective::all_reduce, &agreement, &agreement, 4, DataType::uint64, least});
  if (agreed.ok() && agreement.digest != ~agreement.complement) agreed = adopt_cost_environment(group);
  if (!agreed.ok()) {
    close(group.id);
    return agreed.failure();
  }
  const GroupAgreement result{.has_board = agreement.board == 1,
                              .round_trip = static_cast<double>(~agreement.round_trip_complement) * 1e-6};
  driver_.with_engine([&](engine::Engine& engine) {
    engine.groups().end_opening(group.id);
    engine.groups().use_board(group.id, result.has_board);
    if (!parent) window_bytes_ = cost_environment_.window_bytes(result.round_trip);
    engine.use_sizes(cost_environment_.slice_bytes, window_bytes_);
  });
  slice_bytes_ = cost_environment_.slice_bytes;
  if (const std::uint64_t window = cost_environment_.window_bytes(result.round_trip); window > 0) {
    qccl::log(LogLevel::info,
              fmt::format("rank {}: group '{}' has ranks {:.1f} ms apart (a round trip): a window of {} "
                          "bytes",
                          group.world_rank(), group.name, result.round_trip * 1e3, window));
  }
  return result;
}

Status JobGroups::adopt_cost_environment(const GroupIdentity& group) {
  const std::string own = to_text(cost_environment_);
  std::string text = own;
  text.resize(kMaxCostEnvironmentBytes, '\0');
  const CallOptions options{.algorithm = Algorithm::one_shot};
  QCCL_TRY(run(group, {Collective::broadcast, text.data(), text.data(), text.size(), DataType::uint8, options}));
  text.resize(text.find('\0'));
  if (group.rank == 0 || text == own) return {};
  QCCL_ASSIGN(CostEnvironment cost_environment, parse_cost_environment(text));
  // Slices may differ without a reason to warn: hosts may have different numbers of cores.
  cost_environment_.slice_bytes = cost_environment.slice_bytes;
  if (text == to_text(cost_environment_)) return {};
  qccl::log(
      LogLevel::warning,
      fmt::format("rank {}: QCCL_PROFILE, QCCL_TRANSPORT or QCCL_LINK_RATE differs from rank 0's; rank 0's settings "
                  "choose the algorithms",
                  group.world_rank()));
  cost_environment_ = std::move(cost_environment);
  return {};
}

}  // namespace qccl::comm
