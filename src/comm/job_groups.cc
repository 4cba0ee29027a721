#include "comm/job_groups.h"

#include <fmt/format.h>

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

Result<bool> JobGroups::open(const GroupIdentity& group, std::optional<std::uint64_t> parent) {
  Status opened;
  bool has_cell = false;
  driver_.with_engine([&](engine::Engine& engine) {
    opened = engine.groups().open(group.id, group.name, group.ranks, parent);
    has_cell = opened.ok() && engine.groups().prepare_board(group.id);
  });
  if (!opened.ok()) return opened.failure();

  // The members use the board if all of them have a cell. They all have the same digest if the smallest digest and the
  // smallest complement belong together. This call is also the barrier after which every member has opened the group.
  struct Agreement {
    std::uint64_t board, digest, complement;
  };
  const std::uint64_t own = digest(to_text(cost_environment_));
  Agreement agreement{has_cell ? 1u : 0u, own, ~own};
  const CallOptions least{.op = ReduceOp::min, .algorithm = Algorithm::one_shot};
  Status agreed = run(group, {Collective::all_reduce, &agreement, &agreement, 3, DataType::uint64, least});
  if (agreed.ok() && agreement.digest != ~agreement.complement) agreed = adopt_cost_environment(group);
  if (!agreed.ok()) {
    close(group.id);
    return agreed.failure();
  }
  const bool uses_board = agreement.board == 1;
  driver_.with_engine([&](engine::Engine& engine) {
    engine.groups().end_opening(group.id);
    engine.groups().use_board(group.id, uses_board);
    engine.use_slices(cost_environment_.slice_bytes);
  });
  slice_bytes_ = cost_environment_.slice_bytes;
  return uses_board;
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

void JobGroups::close(std::uint64_t id) {
  driver_.with_engine([id](engine::Engine& engine) { engine.groups().close(id); });
}

void JobGroups::refuse(GroupIdentity&& group) {
  driver_.with_engine([&](engine::Engine& engine) { engine.groups().refuse(group.id, std::move(group.ranks)); });
}

}  // namespace qccl::comm
