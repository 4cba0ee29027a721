#include "group/call_builder.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "codec/registry.h"
#include "job/call_memory.h"
#include "job/context.h"
#include "job/job_groups.h"
#include "observe/log_store.h"
#include "plan/algorithms/registry.h"

namespace qccl::comm {
namespace {

using engine::CallArguments;

// A barrier has no buffers, and says nothing about devices.
bool is_staged(const CollectiveCall& call) {
  return call.options.stream.has_value() && call.collective != Collective::barrier;
}

// Why there is no such message; empty if the call is right.
std::string invalid_reason(const MessageCall& call, int world) {
  const int lowest = call.incoming ? kAnySource : 0;
  const std::uint64_t limit = std::numeric_limits<std::int64_t>::max() / element_bytes(call.type);
  if (call.peer < lowest || call.peer >= world) {
    return fmt::format("rank {} is not in a group of {}", call.peer, world);
  }
  if (call.options.tag < 0) return fmt::format("tag {} is negative", call.options.tag);
  if (call.count > limit) return fmt::format("count {} is over the limit of {}", call.count, limit);
  if (call.count > 0 && (call.incoming ? call.output : call.input) == nullptr) {
    return fmt::format("{} elements with a null buffer", call.count);
  }
  return {};
}

}  // namespace

// ---- MappedRegions

std::optional<MappedRegions::Match> MappedRegions::find(const void* begin, std::size_t bytes, int rank) {
  if (regions_.empty()) return std::nullopt;
  std::erase_if(regions_, [](const auto& region) { return region.expired(); });
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  for (const auto& candidate : regions_) {
    auto region = candidate.lock();
    if (region == nullptr || bytes > region->bytes) continue;
    const auto base = reinterpret_cast<std::uintptr_t>(region->of_member[static_cast<std::size_t>(rank)].get());
    if (address < base || address - base > region->bytes - bytes) continue;
    return Match{std::move(region), address - base};
  }
  return std::nullopt;
}

// ---- CallBuilder

CallBuilder::CallBuilder(const GroupIdentity& group, Context& context, const GroupAgreement& agreement)
    : group_(group),
      staging_(group, context.call_memory(), context.groups().cost_environment().device_slice_bytes),
      log_(context.log()),
      algorithms_(context.groups().cost_environment(), context.hosts_of(group.ranks), agreement.distance),
      timeout_(context.settings().options.timeout) {
  const Settings& settings = context.settings();
  const std::vector<int> hosts = context.hosts_of(group.ranks);
  defaults_.min_bytes = settings.options.compression_min_bytes;
  defaults_.algorithm = settings.algorithm;
  defaults_.has_board = agreement.has_board;
  defaults_.slice_bytes = context.groups().slice_bytes();
  defaults_.window_bytes = algorithms_.window_bytes();
  defaults_.hosts.assign(hosts.begin(), hosts.end());
  defaults_.sites.assign(agreement.distance.sites.begin(), agreement.distance.sites.end());
  defaults_.algorithms = &algorithms_;
  defaults_.trials = &trials_;
  set_compression(settings.compression);
}

// What both kinds of calls have.
template <class AnyCall>
CallArguments CallBuilder::arguments_of(const AnyCall& call) const {
  CallArguments arguments;
  arguments.group = group_.id;
  arguments.output = static_cast<std::byte*>(call.output);
  arguments.timeout = call.options.timeout ? saturating_nanoseconds(*call.options.timeout) : timeout_;
  if (log_->is_on()) arguments.log_name = call.options.log_name;
  return arguments;
}

CallArguments CallBuilder::build(const CollectiveCall& call) {
  auto region = find_region(call);
  CallArguments arguments = arguments_of(call);
  arguments.input = static_cast<const std::byte*>(input_of(call));
  arguments.plan = plan_of(call, region);
  if (const std::string reason = invalid_reason(*arguments.plan, call); !reason.empty()) {
    throw group_.invalid_argument(std::string(to_string(call.collective)), reason);
  }
  arguments.premul_factor = call.options.premul_factor;
  if (arguments.plan->codec() != nullptr) arguments.feedback = call.options.error_feedback.state();
  if (arguments.plan->call().region != 0) arguments.region = std::move(region->region);
  arguments.awaited = call.options.awaited;
  if (is_staged(call)) staging_.stage(arguments, call);
  if (arguments.feedback != nullptr && !is_computed_by_device(arguments))
    staging_.bring_home(*arguments.feedback, to_string(call.collective));
  if (call.options.keep_input) staging_.keep_input(arguments, call);
  return arguments;
}

CallArguments CallBuilder::build(const MessageCall& call) {
  const std::string_view name = call.incoming ? "recv" : "send";
  if (const std::string reason = comm::invalid_reason(call, group_.size()); !reason.empty()) {
    throw group_.invalid_argument(std::string(name), reason);
  }
  const Compression compression = take_or_throw(choose_compression(call), name);
  CallArguments arguments = arguments_of(call);
  arguments.input = static_cast<const std::byte*>(call.input);
  arguments.message = {.incoming = call.incoming,
                       .peer = GroupRank(call.peer),
                       .tag = call.options.tag,
                       .count = call.count,
                       .type = call.type,
                       .compression = compression,
                       .codec = take_or_throw(message_codecs_.find_or_make(compression), name)};
  if (!compression.is_none()) arguments.feedback = call.options.error_feedback.state();
  if (call.options.stream) staging_.stage(arguments, call);
  if (arguments.feedback != nullptr) staging_.bring_home(*arguments.feedback, name);
  return arguments;
}

bool CallBuilder::is_automatic(const CollectiveCall& call) const {
  const auto& own = call.options.compression;
  return own ? qccl::is_automatic(*own) : defaults_to_automatic_.load(std::memory_order_relaxed);
}

ClassTrial* CallBuilder::trial_of(const CollectiveCall& call) {
  auto compression = choose_compression(call, group_.size(), defaults_);
  if (has_private_counts(call) || !compression.ok() || !qccl::is_automatic(*compression)) return nullptr;
  const CallClass own{call.collective, total_count(call), call.type, *compression};
  return &trials_.find_or_make(own, [&] { return ClassTrial(own); });
}

void CallBuilder::set_compression(const Compression& compression) {
  defaults_.compression = compression;
  defaults_to_automatic_ = qccl::is_automatic(compression);
  plans_.clear();
}

std::uint64_t CallBuilder::use_lines(const AgreedLines& lines) {
  algorithms_.use_lines(lines);
  defaults_.shares.assign(lines.shares.begin(), lines.shares.end());
  defaults_.window_bytes = algorithms_.window_bytes();
  plans_.clear();
  return defaults_.window_bytes;
}

// The region of an all_reduce in place, unless it is a premul_sum: no rank knows another's factor. Other ranks write to
// a region even after the call has failed here, so a call that keeps its input uses none.
std::optional<MappedRegions::Match> CallBuilder::find_region(const CollectiveCall& call) {
  const bool may_use_one = !call.options.stream && call.collective == Collective::all_reduce &&
                           call.input == call.output && call.count > 0 && call.options.op != ReduceOp::premul_sum &&
                           !call.options.keep_input;
  if (!may_use_one) return std::nullopt;
  return regions_.find(call.output, call.count * element_bytes(call.type), group_.rank);
}

// On the board, the ranks reduce all of a mapped buffer where it lies, unless the call is small or asks for something
// else. Between hosts, hierarchical and SRA use it inside each host: with them, one rank alone reads each slice.
bool CallBuilder::suits_region(const engine::ResolvedCall& resolved, const engine::MappedRegion& region,
                               const CallOptions& options) const {
  if (resolved.board || resolved.error_feedback) return false;
  if (!region.on_board) return plan::entry_of(resolved.algorithm).reads_mapped_buffers;
  return resolved.compression.is_none() && options.algorithm == Algorithm::automatic &&
         defaults_.algorithm == Algorithm::automatic;
}

template <class T>
T CallBuilder::take_or_throw(Result<T> result, std::string_view operation) const {
  if (result.ok()) return std::move(*result);
  ErrorInfo info = group_.failure(result.error().kind, result.error().message);
  info.operation = operation;
  throw Error(std::move(info));
}

PlanCache::Plan CallBuilder::plan_of(const CollectiveCall& call, const std::optional<MappedRegions::Match>& region) {
  const RegionOffset offset = region ? RegionOffset{region->region->id, region->offset} : RegionOffset{};
  const bool has_signature = !is_automatic(call) && PlanCache::has_signature(call);
  if (has_signature) {
    if (auto plan = plans_.find(call, offset)) return plan;
  }
  engine::ResolvedCall resolved =
      take_or_throw(comm::resolve(call, group_.size(), defaults_), to_string(call.collective));
  const bool may_choose = call.options.algorithm == Algorithm::automatic && defaults_.algorithm == Algorithm::automatic;
  if (is_staged(call)) staging_.place(call, resolved, may_choose);
  if (region && suits_region(resolved, *region->region, call.options)) {
    if (region->region->on_board) resolved.algorithm = Algorithm::one_shot;
    resolved.region = offset.region;
    resolved.region_offset = offset.bytes;
  }
  auto plan = plans_.find(resolved);
  const bool is_new = plan == nullptr;
  if (is_new) {
    auto codec = plans_.find_codec(resolved.compression);
    if (codec == nullptr) codec = make_codec(resolved.compression).take_or_throw();
    plan = std::make_shared<const engine::ExecutablePlan>(resolved, group_.size(), GroupRank(group_.rank),
                                                          std::move(codec));
  }
  if (has_signature) {
    plans_.add(call, offset, plan);
  } else if (is_new) {
    plans_.add(plan);
  }
  return plan;
}

// What is wrong with the caller's buffers or counts; empty if nothing is.
std::string CallBuilder::invalid_reason(const engine::ExecutablePlan& plan, const CollectiveCall& call) const {
  const std::uint64_t inputs = plan.input_elements();
  const std::uint64_t outputs = plan.output_elements();
  if (inputs > 0 && input_of(call) == nullptr) return fmt::format("{} elements from a null buffer", inputs);
  if (outputs > 0 && call.output == nullptr) return fmt::format("{} elements into a null buffer", outputs);
  if (call.collective != Collective::all_to_all) return {};
  if (inputs > 0 && call.input == call.output) return "does not work in place, give it two buffers";
  if (!call.counts) return {};
  const auto own = static_cast<std::size_t>(group_.rank);
  const std::uint64_t sent = (*call.counts)[own];
  const std::uint64_t received = call.receives[own];
  if (sent == received) return {};
  return fmt::format("this rank sends itself {} elements and receives {}", sent, received);
}

double predict_seconds(const CallArguments& arguments, const GroupIdentity& group, const GroupDefaults& defaults) {
  if (!arguments.message) return predict_seconds(arguments.plan->call(), group.size(), defaults);
  const engine::Message& message = *arguments.message;
  const std::size_t bytes = message.codec == nullptr
                                ? message.count * element_bytes(message.type)
                                : message.codec->expected_encoded_bytes(message.count, message.type);
  // A message of any rank counts as one of this host.
  const int peer = message.peer.value() < 0 ? group.rank : message.peer.value();
  return defaults.algorithms->predict_message(static_cast<double>(bytes), peer, group.rank);
}

}  // namespace qccl::comm
