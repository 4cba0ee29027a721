#include "comm/choice.h"

#include <fmt/format.h>

#include <limits>

#include "engine/board_operation.h"

namespace qccl::comm {
namespace {

bool is_reduction(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter;
}

bool is_compressible_type(DataType type) {
  return type == DataType::float32 || type == DataType::float16 || type == DataType::bfloat16;
}

bool is_summing(ReduceOp op) { return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum; }

// Why a codec can't serve this call; empty if it can.
std::string obstacle(Collective collective, DataType type, ReduceOp op) {
  if (!is_reduction(collective)) {
    return fmt::format("{} can't be compressed, only all_reduce and reduce_scatter can", to_string(collective));
  }
  if (!is_summing(op)) {
    return fmt::format("a {} reduction can't be compressed, only sum, avg and premul_sum can", to_string(op));
  }
  if (!is_compressible_type(type)) {
    return fmt::format("{} can't be compressed, only float32, float16 and bfloat16 can", to_string(type));
  }
  return {};
}

// Largest operation that goes one-shot. Two ranks: what fits the eager limit, measured as the
// crossing on loopback TCP; more ranks send to everybody, so their share shrinks.
std::uint64_t one_shot_limit(int world) { return 2 * 64 * 1024 / static_cast<std::uint64_t>(world); }

// "sum, min, max, ..."
std::string supported_ops(DataType type) {
  std::string names;
  for (auto op = ReduceOp::sum; op <= ReduceOp::premul_sum; op = static_cast<ReduceOp>(static_cast<int>(op) + 1)) {
    if (supports(type, op)) names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(op));
  }
  return names;
}

Status check_arguments(Collective collective, std::uint64_t count, DataType type, int world,
                       const CallOptions& options) {
  const std::uint64_t limit =
      std::numeric_limits<std::int64_t>::max() / (element_bytes(type) * static_cast<std::uint64_t>(world));
  if (count > limit) {
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("{}: count {} is over the limit of {}", to_string(collective), count, limit));
  }
  if (collective == Collective::broadcast && (options.root < 0 || options.root >= world)) {
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("broadcast: root {} is no rank of a group of {}", options.root, world));
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

}  // namespace

Result<Compression> choose_compression(Collective collective, std::uint64_t count, DataType type, int world,
                                       const CallOptions& options, const GroupDefaults& defaults) {
  const bool asked = options.compression.has_value();
  const Compression wanted = asked ? *options.compression : defaults.compression;
  if (wanted.kind == Compression::Kind::none) return none();
  const std::string why_not = obstacle(collective, type, options.op);
  if (!why_not.empty() && asked) {
    return Failure(ErrorKind::unsupported, fmt::format("{}: {}", wanted.to_string(), why_not));
  }
  if (!why_not.empty() || world == 1) return none();
  if (!asked && count * element_bytes(type) < defaults.min_bytes) return none();
  // A 16-bit type is on the wire with 16 bits already.
  if (wanted.kind == Compression::Kind::cast && type != DataType::float32) return none();
  return wanted;
}

Algorithm choose_algorithm(Collective collective, std::uint64_t count, DataType type, int world,
                           const Compression& compression, Algorithm asked) {
  if (collective != Collective::all_reduce && collective != Collective::broadcast) return Algorithm::one_shot;
  if (asked != Algorithm::automatic) return asked;
  if (world == 1) return Algorithm::one_shot;
  if (collective == Collective::broadcast && world == 2) return Algorithm::one_shot;
  const bool lossless = compression.kind == Compression::Kind::none;
  const std::uint64_t bytes = count * element_bytes(type);
  return lossless && bytes <= one_shot_limit(world) ? Algorithm::one_shot : Algorithm::sra;
}

Result<engine::Call> make_call(Collective collective, std::uint64_t count, DataType type, int world,
                               const CallOptions& options, const GroupDefaults& defaults) {
  QCCL_TRY(check_arguments(collective, count, type, world, options));
  auto compression = choose_compression(collective, count, type, world, options, defaults);
  if (!compression.ok()) return compression.failure();
  engine::Call call;
  call.collective = collective;
  call.count = count;
  call.type = type;
  if (is_reduction(collective)) call.op = options.op;
  if (collective == Collective::broadcast) call.root = options.root;
  call.compression = *compression;
  const Algorithm asked = options.algorithm == Algorithm::automatic ? defaults.algorithm : options.algorithm;
  call.algorithm = choose_algorithm(collective, count, type, world, *compression, asked);
  call.board = defaults.has_board && asked == Algorithm::automatic && engine::fits_board(call, world);
  return call;
}

}  // namespace qccl::comm
