#include "comm/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>

#include "codec/registry.h"
#include "engine/board_operation.h"
#include "plan/choice.h"
#include "plan/plan.h"

namespace qccl::comm {
namespace {

bool is_compressible_type(DataType type) {
  return type == DataType::float32 || type == DataType::float16 || type == DataType::bfloat16;
}

bool is_summing(ReduceOp op) { return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum; }

// Why a codec can't serve this call; empty if it can.
std::string obstacle(Collective collective, DataType type, ReduceOp op) {
  const bool moves = collective == Collective::all_gather || collective == Collective::all_to_all ||
                     collective == Collective::broadcast;
  if (!is_reduction(collective) && !moves) {
    return fmt::format(
        "{} can't be compressed, only all_reduce, reduce, reduce_scatter, all_gather, all_to_all and "
        "broadcast can",
        to_string(collective));
  }
  if (!moves && !is_summing(op)) {
    return fmt::format("a {} reduction can't be compressed, only sum, avg and premul_sum can", to_string(op));
  }
  if (!is_compressible_type(type)) {
    return fmt::format("{} can't be compressed, only float32, float16 and bfloat16 can", to_string(type));
  }
  return {};
}

// "sum, min, max, ..."
std::string supported_ops(DataType type) {
  std::string names;
  for (auto op = ReduceOp::sum; op <= ReduceOp::premul_sum; op = static_cast<ReduceOp>(static_cast<int>(op) + 1)) {
    if (supports(type, op)) names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(op));
  }
  return names;
}

Status check_extent(Collective collective, const Extent& extent, DataType type, int world) {
  const std::uint64_t limit =
      std::numeric_limits<std::int64_t>::max() / (element_bytes(type) * static_cast<std::uint64_t>(world));
  const std::size_t lists = collective == Collective::all_to_all ? 2 : 1;
  if (extent.counts && extent.counts->size() != lists * static_cast<std::size_t>(world)) {
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("{}_v: {} counts where a group of {} needs {}", to_string(collective),
                               extent.counts->size(), world, lists * static_cast<std::size_t>(world)));
  }
  std::uint64_t most = extent.count;
  if (extent.counts) most = *std::max_element(extent.counts->begin(), extent.counts->end());
  if (most <= limit) return {};
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("{}: count {} is over the limit of {}", to_string(collective), most, limit));
}

Status check_arguments(Collective collective, const Extent& extent, DataType type, int world,
                       const CallOptions& options) {
  QCCL_TRY(check_extent(collective, extent, type, world));
  if (is_rooted(collective) && (options.root < 0 || options.root >= world)) {
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("{}: root {} is no rank of a group of {}", to_string(collective), options.root, world));
  }
  if (is_reduction(collective) && !supports(type, options.op)) {
    const bool could_divide = options.op == ReduceOp::avg && type != DataType::boolean;
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("{}: {} of {} is not defined{}; {} has {}", to_string(collective), to_string(options.op),
                               to_string(type), could_divide ? " (use sum and divide)" : "", to_string(type),
                               supported_ops(type)));
  }
  return {};
}

bool has_algorithm(Collective collective, Algorithm algorithm) {
  const auto all = plan::algorithms_of(collective);
  return algorithm == Algorithm::automatic || std::find(all.begin(), all.end(), algorithm) != all.end();
}

Status check_algorithm(Collective collective, Algorithm asked) {
  if (has_algorithm(collective, asked)) return {};
  std::vector<std::string_view> names;
  for (const Algorithm algorithm : plan::algorithms_of(collective)) names.push_back(to_string(algorithm));
  return Failure(ErrorKind::invalid_argument, fmt::format("{} has no algorithm {}, only {}", to_string(collective),
                                                          to_string(asked), fmt::join(names, ", ")));
}

// What error feedback asks of the call, whether or not that will be compressed.
Status check_feedback(const engine::Call& call, int world, const ErrorFeedback& feedback) {
  const std::string name(to_string(call.collective));
  if (!is_reduction(call.collective)) {
    return Failure(ErrorKind::unsupported,
                   fmt::format("{} has no error feedback, only all_reduce, reduce and reduce_scatter have", name));
  }
  if (const std::string why_not = obstacle(call.collective, call.type, call.op); !why_not.empty()) {
    return Failure(ErrorKind::unsupported, fmt::format("{}: error feedback: {}", name, why_not));
  }
  if (const std::uint64_t inputs = engine::input_elements(call, world, 0); feedback.size() != inputs) {
    return Failure(ErrorKind::invalid_argument, fmt::format("{}: error feedback for {} elements, but the input has {}",
                                                            name, feedback.size(), inputs));
  }
  if (const std::string why_not = feedback.state()->obstacle(); !why_not.empty()) {
    return Failure(ErrorKind::misuse, fmt::format("{}: {}", name, why_not));
  }
  return {};
}

}  // namespace

Result<Compression> choose_compression(Collective collective, std::uint64_t count, DataType type, int world,
                                       const CallOptions& options, const GroupDefaults& defaults) {
  const bool asked = options.compression.has_value();
  const Compression wanted = asked ? *options.compression : defaults.compression;
  if (wanted.is_none()) return none();
  const std::string why_not = obstacle(collective, type, options.op);
  if (!why_not.empty() && asked) {
    return Failure(ErrorKind::unsupported, fmt::format("{}: {}", wanted.to_string(), why_not));
  }
  if (!why_not.empty() || world == 1) return none();
  if (!asked && !is_reduction(collective)) return none();
  if (!asked && count * element_bytes(type) < defaults.min_bytes) return none();
  const CodecEntry* codec = entry_of(wanted);
  if (codec != nullptr && codec->only_float32 && type != DataType::float32) return none();
  return wanted;
}

Algorithm choose_algorithm(Collective collective, std::uint64_t count, DataType type, int world,
                           const Compression& compression, Algorithm asked) {
  if (asked != Algorithm::automatic) return asked;
  return plan::choose(collective, count * element_bytes(type), world, !compression.is_none());
}

Extent::Extent(std::vector<std::uint64_t> each)
    : count(std::accumulate(each.begin(), each.end(), std::uint64_t{0})), counts(std::move(each)) {}

Result<engine::Call> make_call(Collective collective, const Extent& extent, DataType type, int world,
                               const CallOptions& options, const GroupDefaults& defaults) {
  QCCL_TRY(check_arguments(collective, extent, type, world, options));
  QCCL_TRY(check_algorithm(collective, options.algorithm));
  auto compression = choose_compression(collective, extent.count, type, world, options, defaults);
  if (!compression.ok()) return compression.failure();
  engine::Call call;
  call.collective = collective;
  if (extent.counts) {
    call.counts = *extent.counts;
  } else {
    call.count = extent.count;
  }
  call.type = type;
  if (is_reduction(collective)) call.op = options.op;
  if (is_rooted(collective)) call.root = options.root;
  call.compression = *compression;
  call.error_feedback = !options.error_feedback.is_none();
  if (call.error_feedback) QCCL_TRY(check_feedback(call, world, options.error_feedback));
  // The group's is for the collectives that have it.
  const Algorithm usual = has_algorithm(collective, defaults.algorithm) ? defaults.algorithm : Algorithm::automatic;
  const Algorithm asked = options.algorithm == Algorithm::automatic ? usual : options.algorithm;
  call.algorithm = choose_algorithm(collective, extent.count, type, world, *compression, asked);
  call.board =
      defaults.has_board && !call.error_feedback && asked == Algorithm::automatic && engine::fits_board(call, world);
  return call;
}

}  // namespace qccl::comm
