#include "comm/choice/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>

#include "codec/registry.h"
#include "engine/collective/cell_operation.h"
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

// The group's is for the collectives that have it.
Algorithm asked_algorithm(Collective collective, const CallOptions& options, const GroupDefaults& defaults) {
  if (options.algorithm != Algorithm::automatic) return options.algorithm;
  return has_algorithm(collective, defaults.algorithm) ? defaults.algorithm : Algorithm::automatic;
}

AlgorithmTable::Asked asked_of(const engine::Call& call, int world) {
  const std::uint64_t input = engine::piece_begin(call, world);
  const bool has_pieces = call.collective == Collective::all_gather || call.collective == Collective::gather ||
                          call.collective == Collective::reduce_scatter || call.collective == Collective::scatter ||
                          call.collective == Collective::all_to_all;
  return {call.collective, has_pieces ? input : call.count, call.type, call.compression};
}

AlgorithmTable table_of_one_host(int world) {
  return AlgorithmTable({}, std::vector<int>(static_cast<std::size_t>(world), 0));
}

Algorithm choose_algorithm(const engine::Call& call, int world, AlgorithmTable* table) {
  // Each rank knows its own counts only.
  if (call.collective == Collective::all_to_all && !call.counts.empty()) return Algorithm::one_shot;
  const auto asked = asked_of(call, world);
  return table != nullptr ? table->choose(asked) : table_of_one_host(world).choose(asked);
}

// What an automatic one is at present. No rank of an all_to_all_v knows how much the others have, which a trial needs.
Compression settled(const Compression& compression, const Extent& extent, const engine::Call& call,
                    const GroupDefaults& defaults) {
  if (!is_automatic(compression)) return compression;
  const bool differs = call.collective == Collective::all_to_all && extent.counts;
  if (differs || defaults.automatic == nullptr) return none();
  return defaults.automatic->current({call.collective, extent.count, call.type, compression});
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.4g} s", seconds);
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

Extent::Extent(std::span<const std::uint64_t> each)
    : count(std::accumulate(each.begin(), each.end(), std::uint64_t{0})),
      counts(std::in_place, each.begin(), each.end()) {}

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
  call.compression = settled(*compression, extent, call, defaults);
  call.error_feedback = !options.error_feedback.is_none();
  if (call.error_feedback) QCCL_TRY(check_feedback(call, world, options.error_feedback));
  const Algorithm asked = asked_algorithm(collective, options, defaults);
  call.algorithm = plan::built_for(asked, !call.compression.is_none());
  if (call.algorithm != Algorithm::automatic) return call;
  call.board = defaults.has_board && !call.error_feedback && engine::fits_board(call, world);
  call.algorithm = call.board ? Algorithm::one_shot : choose_algorithm(call, world, defaults.table);
  return call;
}

std::string explain_algorithm(const engine::Call& call, int world, const CallOptions& options,
                              const GroupDefaults& defaults) {
  if (world == 1) return "one rank: a copy";
  const std::string name(to_string(call.algorithm));
  if (asked_algorithm(call.collective, options, defaults) != Algorithm::automatic) return name + ": asked for";
  if (call.board) return "through cells in shared memory: small, and all ranks on one host";
  if (call.collective == Collective::all_to_all && !call.counts.empty()) {
    return name + ": no rank knows the others' counts";
  }
  const auto asked = asked_of(call, world);
  const plan::Choice choice =
      defaults.table != nullptr ? defaults.table->explain(asked) : table_of_one_host(world).explain(asked);
  std::string others;
  std::string own;
  for (const plan::Candidate& each : choice.candidates) {
    const std::string time = time_text(each.price.seconds);
    if (each.algorithm == choice.algorithm) {
      own = time;
    } else {
      others += fmt::format("{}{} {}", others.empty() ? "" : ", ", to_string(each.algorithm), time);
    }
  }
  return fmt::format("{}, {}: {}{}", name, own, choice.reason, others.empty() ? "" : fmt::format(" ({})", others));
}

}  // namespace qccl::comm
