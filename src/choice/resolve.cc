#include "choice/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>

#include "base/text.h"
#include "codec/registry.h"
#include "engine/call/feedback_state.h"
#include "plan/algorithms/registry.h"

namespace qccl::comm {
namespace {

std::string unsupported_reason(DataType type) {
  if (is_compressible(type)) return {};
  return fmt::format("{} can't be compressed, only float32, float16 and bfloat16 can", to_string(type));
}

// Why a codec does not support this call; empty if it does.
std::string unsupported_reason(Collective collective, DataType type, ReduceOp op) {
  if (!is_compressible(collective)) {
    return fmt::format(
        "{} can't be compressed, only all_reduce, reduce, reduce_scatter, all_gather, all_to_all and "
        "broadcast can",
        to_string(collective));
  }
  if (is_reduction(collective) && !is_sum(op)) {
    return fmt::format("a {} reduction can't be compressed, only sum, avg and premul_sum can", to_string(op));
  }
  return unsupported_reason(type);
}

// "sum, min, max, ..."
std::string supported_ops(DataType type) {
  std::string names;
  for (auto op = ReduceOp::sum; op <= ReduceOp::premul_sum; op = static_cast<ReduceOp>(static_cast<int>(op) + 1)) {
    if (supports(type, op)) names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(op));
  }
  return names;
}

// Checks the state of a call of that many elements.
Status check_state(std::string_view operation, std::uint64_t elements, const ErrorFeedback& feedback) {
  if (feedback.size() != elements) {
    return Failure(ErrorKind::invalid_argument, fmt::format("{}: error feedback for {} elements, but the input has {}",
                                                            operation, feedback.size(), elements));
  }
  const std::string reason = feedback.state()->unusable_reason();
  if (!reason.empty()) return Failure(ErrorKind::misuse, fmt::format("{}: {}", operation, reason));
  return {};
}

// A failure that names the call.
template <class... Args>
Failure refuse(ErrorKind kind, Collective collective, fmt::format_string<Args...> format, Args&&... args) {
  return Failure(kind, fmt::format("{}: {}", to_string(collective), fmt::format(format, std::forward<Args>(args)...)));
}

Status check_list(const CollectiveCall& call, Counts counts, int world) {
  if (counts.size() == static_cast<std::size_t>(world)) return {};
  return Failure(ErrorKind::invalid_argument, fmt::format("{}_v: {} counts where a group of {} needs {}",
                                                          to_string(call.collective), counts.size(), world, world));
}

Status check_count(const CollectiveCall& call, int world) {
  const std::uint64_t limit =
      std::numeric_limits<std::int64_t>::max() / (element_bytes(call.type) * static_cast<std::uint64_t>(world));
  std::uint64_t most = call.count;
  if (call.counts) {
    QCCL_TRY(check_list(call, *call.counts, world));
    most = std::ranges::max(*call.counts);
  }
  if (has_private_counts(call)) {
    QCCL_TRY(check_list(call, call.receives, world));
    most = std::max(most, std::ranges::max(call.receives));
  }
  if (most <= limit) return {};
  return refuse(ErrorKind::invalid_argument, call.collective, "count {} is over the limit of {}", most, limit);
}

Status check_arguments(const CollectiveCall& call, int world) {
  QCCL_TRY(check_count(call, world));
  const CallOptions& options = call.options;
  if (is_rooted(call.collective) && (options.root < 0 || options.root >= world)) {
    return refuse(ErrorKind::invalid_argument, call.collective, "root {} is not in a group of {}", options.root, world);
  }
  if (is_reduction(call.collective) && !supports(call.type, options.op)) {
    const bool could_divide = options.op == ReduceOp::avg && call.type != DataType::boolean;
    return refuse(ErrorKind::invalid_argument, call.collective, "{} of {} is not defined{}; {} has {}",
                  to_string(options.op), to_string(call.type), could_divide ? " (use sum and divide)" : "",
                  to_string(call.type), supported_ops(call.type));
  }
  return {};
}

bool has_algorithm(Collective collective, Algorithm algorithm) {
  return algorithm == Algorithm::automatic || plan::has_algorithm(collective, algorithm);
}

Status check_algorithm(Collective collective, Algorithm requested) {
  if (has_algorithm(collective, requested)) return {};
  std::vector<std::string_view> names;
  for (const Algorithm algorithm : plan::algorithms_of(collective)) names.push_back(to_string(algorithm));
  return Failure(ErrorKind::invalid_argument, fmt::format("{} has no algorithm {}, only {}", to_string(collective),
                                                          to_string(requested), fmt::join(names, ", ")));
}

// Checks the call for error feedback, whether or not it will be compressed.
Status check_feedback(const engine::ResolvedCall& call, int world, const ErrorFeedback& feedback) {
  if (!is_reduction(call.collective)) {
    return Failure(ErrorKind::unsupported,
                   fmt::format("{} has no error feedback, only all_reduce, reduce and reduce_scatter have",
                               to_string(call.collective)));
  }
  if (const std::string reason = unsupported_reason(call.collective, call.type, call.op); !reason.empty()) {
    return refuse(ErrorKind::unsupported, call.collective, "error feedback: {}", reason);
  }
  return check_state(to_string(call.collective), engine::input_elements(call, world, 0), feedback);
}

// The call's algorithm, else the group's for the collectives that have it.
Algorithm requested_algorithm(Collective collective, const CallOptions& options, const GroupDefaults& defaults) {
  if (options.algorithm != Algorithm::automatic) return options.algorithm;
  return has_algorithm(collective, defaults.algorithm) ? defaults.algorithm : Algorithm::automatic;
}

// `together`: CallOptions::together.
CallClass class_of(const engine::ResolvedCall& call, int world, std::uint64_t together = 0) {
  const std::uint64_t elements = has_pieces(call.collective) ? engine::piece_begin(call, world) : call.count;
  return {call.collective, std::max(elements, together), call.type, call.compression};
}

// Calls use(table) with the group's table, or with one for ranks that share a host.
template <class Use>
auto with_algorithms(int world, const GroupDefaults& defaults, const Use& use) {
  if (defaults.algorithms != nullptr) return use(*defaults.algorithms);
  AlgorithmTable one_host({}, std::vector<int>(static_cast<std::size_t>(world), 0));
  return use(one_host);
}

Algorithm choose_algorithm(const CallClass& call, bool has_counts, int world, const GroupDefaults& defaults) {
  // Each rank knows only its own counts.
  if (call.collective == Collective::all_to_all && has_counts) return Algorithm::one_shot;
  return with_algorithms(world, defaults, [&](AlgorithmTable& table) { return table.choose(call); });
}

bool goes_by_sites(const CallClass& call, const GroupDefaults& defaults) {
  if (defaults.sites.empty() || defaults.algorithms == nullptr) return false;
  return defaults.algorithms->goes_by_sites(call);
}

// The codec that automatic compression takes now. A trial needs all ranks' counts.
Compression current_compression(const Compression& compression, const CollectiveCall& call,
                                const GroupDefaults& defaults) {
  if (!is_automatic(compression)) return compression;
  if (has_private_counts(call) || defaults.trials == nullptr) return none();
  const ClassTrial* trial = defaults.trials->find({call.collective, total_count(call), call.type, compression});
  return trial == nullptr ? none() : trial->current();
}

// The codec makes the type smaller.
bool fits_type(const Compression& compression, DataType type) {
  const CodecEntry* codec = entry_of(compression);
  return codec == nullptr || !codec->only_float32 || type == DataType::float32;
}

void take_counts(const CollectiveCall& call, engine::ResolvedCall& resolved) {
  if (!call.counts) {
    resolved.count = call.count;
    return;
  }
  resolved.counts.assign(call.counts->begin(), call.counts->end());
  resolved.counts.insert(resolved.counts.end(), call.receives.begin(), call.receives.end());
}

}  // namespace

Result<Compression> choose_compression(const CollectiveCall& call, int world, const GroupDefaults& defaults) {
  const bool is_explicit = call.options.compression.has_value();
  const Compression wanted = is_explicit ? *call.options.compression : defaults.compression;
  if (wanted.is_none()) return none();
  const std::string unsupported = unsupported_reason(call.collective, call.type, call.options.op);
  if (!unsupported.empty() && is_explicit) {
    return Failure(ErrorKind::unsupported, fmt::format("{}: {}", wanted.to_string(), unsupported));
  }
  if (!unsupported.empty() || world == 1) return none();
  if (!is_explicit && !is_reduction(call.collective)) return none();
  if (!is_explicit && total_count(call) * element_bytes(call.type) < defaults.min_bytes) return none();
  return fits_type(wanted, call.type) ? wanted : none();
}

Result<Compression> choose_compression(const MessageCall& call) {
  const char* const operation = call.incoming ? "recv" : "send";
  const Compression wanted = call.options.compression.value_or(none());
  const ErrorFeedback& feedback = call.options.error_feedback;
  const std::string unsupported = unsupported_reason(call.type);
  if (!wanted.is_none() && !unsupported.empty()) {
    return Failure(ErrorKind::unsupported, fmt::format("{}: {}: {}", operation, wanted.to_string(), unsupported));
  }
  if (is_automatic(wanted)) {
    return Failure(
        ErrorKind::unsupported,
        fmt::format("{}: {}: only collectives choose their codec, name the message's", operation, wanted.to_string()));
  }
  if (!feedback.is_none()) {
    if (call.incoming) {
      return Failure(ErrorKind::unsupported, "recv: a message has error feedback on its sender alone");
    }
    if (!unsupported.empty()) {
      return Failure(ErrorKind::unsupported, fmt::format("send: error feedback: {}", unsupported));
    }
    QCCL_TRY(check_state(operation, call.count, feedback));
  }
  return fits_type(wanted, call.type) ? wanted : none();
}

Result<engine::ResolvedCall> resolve(const CollectiveCall& call, int world, const GroupDefaults& defaults) {
  QCCL_TRY(check_arguments(call, world));
  QCCL_TRY(check_algorithm(call.collective, call.options.algorithm));
  auto compression = choose_compression(call, world, defaults);
  if (!compression.ok()) return compression.failure();
  engine::ResolvedCall resolved;
  resolved.collective = call.collective;
  take_counts(call, resolved);
  resolved.type = call.type;
  if (is_reduction(call.collective)) resolved.op = call.options.op;
  if (resolved.op == ReduceOp::avg) resolved.averaged = defaults.averaged;
  if (is_rooted(call.collective)) resolved.root = call.options.root;
  resolved.compression = current_compression(*compression, call, defaults);
  resolved.slice_bytes = defaults.slice_bytes;
  resolved.window_bytes = defaults.window_bytes;
  resolved.error_feedback = !call.options.error_feedback.is_none();
  if (resolved.error_feedback) QCCL_TRY(check_feedback(resolved, world, call.options.error_feedback));
  const CallClass own = class_of(resolved, world, call.options.together);
  const Algorithm requested = requested_algorithm(call.collective, call.options, defaults);
  resolved.algorithm = plan::built_for(requested, !resolved.compression.is_none());
  if (resolved.algorithm == Algorithm::automatic) {
    resolved.board = defaults.has_board && !resolved.error_feedback && engine::fits_board(resolved, world);
    resolved.algorithm =
        resolved.board ? Algorithm::one_shot : choose_algorithm(own, call.counts.has_value(), world, defaults);
  }
  if (plan::entry_of(resolved.algorithm).uses_hosts) {
    resolved.hosts = goes_by_sites(own, defaults) ? defaults.sites : defaults.hosts;
  }
  // Owners do not encode their own input: with other owners, compressed sums have other bits.
  const bool keeps_bits = resolved.compression.is_none() || requested == Algorithm::automatic;
  if (keeps_bits && !resolved.board && plan::uses_shares(resolved.collective, resolved.algorithm)) {
    resolved.shares = defaults.shares;
  }
  return resolved;
}

std::string explain_algorithm(const engine::ResolvedCall& call, int world, const CallOptions& options,
                              const GroupDefaults& defaults) {
  if (world == 1) return "one rank: a copy";
  const bool is_over_sites = !defaults.sites.empty() && call.hosts == defaults.sites;
  const std::string name = fmt::format("{}{}", to_string(call.algorithm), is_over_sites ? " over sites" : "");
  if (requested_algorithm(call.collective, options, defaults) != Algorithm::automatic) return name + ": asked for";
  if (call.board) return "through cells in shared memory: small, and all ranks on one host";
  if (call.collective == Collective::all_to_all && !call.counts.empty()) {
    return name + ": no rank knows the others' counts";
  }
  const plan::Choice choice = with_algorithms(world, defaults, [&](const AlgorithmTable& table) {
    return table.explain(class_of(call, world, options.together));
  });
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

double predict_seconds(const engine::ResolvedCall& call, int world, const GroupDefaults& defaults) {
  CallClass own = class_of(call, world);
  if (call.collective == Collective::all_to_all && !call.counts.empty()) {
    const auto middle = call.counts.begin() + world;
    const auto sent = std::accumulate(call.counts.begin(), middle, std::uint64_t{0});
    own.elements = std::max(sent, std::accumulate(middle, call.counts.end(), std::uint64_t{0}));
  }
  return with_algorithms(world, defaults,
                         [&](const AlgorithmTable& table) { return table.predict(own, call.algorithm); });
}

}  // namespace qccl::comm
