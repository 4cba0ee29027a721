#include "comm/communicator_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <new>

#include "codec/registry.h"
#include "os/fork_list.h"
#include "plan/algorithms/registry.h"

namespace qccl::internal {

using engine::CallArguments;

CommunicatorState::CommunicatorState(std::shared_ptr<comm::Context> context, std::uint64_t id, std::string name,
                                     std::vector<int> ranks)
    : id_(id),
      name_(std::move(name)),
      ranks_(std::move(ranks)),
      context_(std::move(context)),
      table_(context_->cost_environment(), context_->hosts_of(ranks_)) {
  rank_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), context_->rank()) - ranks_.begin());
  const comm::Settings& settings = context_->settings();
  defaults_.compression = settings.compression;
  defaults_.min_bytes = settings.options.compression_min_bytes;
  defaults_.algorithm = settings.options.algorithm;
  defaults_.slice_bytes = context_->slice_bytes();
  defaults_.table = &table_;
  defaults_.automatic = &automatic_;
  defaults_to_automatic_ = qccl::is_automatic(defaults_.compression);
  timeout_ = settings.options.timeout;
  const std::vector<int> hosts = context_->hosts_of(ranks_);
  defaults_.hosts.assign(hosts.begin(), hosts.end());
}

Result<std::shared_ptr<CommunicatorState>> CommunicatorState::open(std::shared_ptr<comm::Context> context,
                                                                   std::uint64_t id, std::string name,
                                                                   std::vector<int> ranks,
                                                                   std::optional<std::uint64_t> parent) {
  // The others wait for a group that this rank has no memory for: they are told.
  try {
    const auto has_board = context->open_group(id, name, ranks, parent);
    if (!has_board.ok()) {
      const ErrorInfo& failure = has_board.error();
      const bool is_own = failure.kind == ErrorKind::resource_exhausted && failure.peer == context->rank();
      if (is_own) context->refuse_group(id, std::move(ranks));
      return Failure(has_board.error());
    }
    std::shared_ptr<CommunicatorState> state(new CommunicatorState(context, id, std::move(name), ranks));
    state->defaults_.has_board = has_board.value();
    return state;
  } catch (const std::bad_alloc&) {
    context->refuse_group(id, std::move(ranks));
    throw;
  }
}

CommunicatorState::~CommunicatorState() {
  if (const auto context = take_context(); context && context->usable().ok()) leave(*context);
}

std::shared_ptr<comm::Context> CommunicatorState::context() const {
  const std::lock_guard lock(mutex_);
  return usable_context();
}

const std::shared_ptr<comm::Context>& CommunicatorState::usable_context() const {
  if (context_ == nullptr) {
    throw Error(
        {.kind = ErrorKind::misuse, .message = fmt::format("QCCL group '{}': this communicator is closed", name_)});
  }
  context_->usable().take_or_throw();
  return context_;
}

std::shared_ptr<comm::Context> CommunicatorState::take_context() {
  const std::lock_guard lock(mutex_);
  return std::exchange(context_, nullptr);
}

// Waits for the group's operations, then closes it. Takes no memory.
void CommunicatorState::leave(comm::Context& context) {
  context.driver().with_engine([this](engine::Engine& engine) { engine.groups().notify_when_quiet(id_, quiet_); });
  context.driver().wait(*quiet_, kForever);
  context.close_group(id_);
}

void CommunicatorState::close() {
  if (const auto context = take_context(); context && context->usable().ok()) leave(*context);
}

comm::GroupDefaults CommunicatorState::defaults() const {
  const std::lock_guard lock(mutex_);
  return defaults_;
}

engine::ResolvedCall CommunicatorState::call_of(Collective collective, std::size_t count, DataType type,
                                                const CallOptions& options) const {
  const std::lock_guard lock(mutex_);
  return comm::resolve({collective, nullptr, nullptr, count, type, options}, size(), defaults_).take_or_throw();
}

std::string CommunicatorState::explain(Collective collective, std::size_t count, DataType type,
                                       const CallOptions& options) const {
  const engine::ResolvedCall call = call_of(collective, count, type, options);
  const std::lock_guard lock(mutex_);
  return comm::explain_algorithm(call, size(), options, defaults_);
}

void CommunicatorState::set_compression(const Compression& compression) {
  const std::lock_guard lock(mutex_);
  defaults_.compression = compression;
  defaults_to_automatic_ = qccl::is_automatic(compression);
  plans_.clear();
}

void CommunicatorState::set_timeout(Milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  timeout_ = timeout;
}

Error CommunicatorState::wrong_argument(const comm::Context& context, std::string operation,
                                        const std::string& what) const {
  return Error({.kind = ErrorKind::invalid_argument,
                .message = fmt::format("QCCL rank {}, group '{}': {}: {}", context.rank(), name_, operation, what),
                .rank = context.rank(),
                .operation = std::move(operation)});
}

// What is wrong with the caller's buffers, or with what it says of them; empty if nothing is.
std::string CommunicatorState::wrong_buffers(const engine::ExecutablePlan& plan, const CollectiveCall& call) const {
  const std::uint64_t inputs = plan.input_elements();
  const std::uint64_t outputs = plan.output_elements();
  if (inputs > 0 && call.input == nullptr) return fmt::format("{} elements from a null buffer", inputs);
  if (outputs > 0 && call.output == nullptr) return fmt::format("{} elements into a null buffer", outputs);
  if (call.collective != Collective::all_to_all) return {};
  if (inputs > 0 && call.input == call.output) return "does not work in place, give it two buffers";
  if (!call.counts) return {};
  const auto own = static_cast<std::size_t>(rank_);
  const std::uint64_t sent = (*call.counts)[own];
  const std::uint64_t received = (*call.counts)[own + static_cast<std::size_t>(size())];
  if (sent == received) return {};
  return fmt::format("this rank sends itself {} elements and receives {}", sent, received);
}

// Where ranks reduce what lies in buffers that others map: on the board all of it, if nothing else is asked for;
// between hosts what these algorithms do inside of one, for there each slice is read by one rank alone.
bool CommunicatorState::suits_region(const engine::ResolvedCall& resolved, const engine::MappedRegion& region,
                                     const CallOptions& options) const {
  if (resolved.board || resolved.error_feedback) return false;
  if (!region.on_board) return plan::entry_of(resolved.algorithm).reads_mapped_buffers;
  return resolved.compression.is_none() && options.algorithm == Algorithm::automatic &&
         defaults_.algorithm == Algorithm::automatic;
}

// An all_reduce in place of a shared buffer goes without frames, or with frames that carry nothing inside a host,
// unless it is small or the call wants otherwise, or it is a premul_sum: no rank knows another's factor.
std::optional<SharedRegions::Place> CommunicatorState::find_region(const CollectiveCall& call) {
  const bool may = call.collective == Collective::all_reduce && call.input == call.output && call.count > 0 &&
                   call.options.op != ReduceOp::premul_sum;
  if (!may) return std::nullopt;
  return regions_.find(call.output, call.count * element_bytes(call.type), rank_);
}

// The one place where a call's choices are made.
comm::PlanCache::Plan CommunicatorState::plan_of(const CollectiveCall& call,
                                                 const std::optional<SharedRegions::Place>& place,
                                                 const comm::Context& context) {
  const comm::RegionPlace at = place ? comm::RegionPlace{place->region->id, place->offset} : comm::RegionPlace{};
  const bool has_signature = !is_automatic(call) && comm::has_signature(call);
  if (has_signature) {
    if (auto plan = plans_.find(call, at)) return plan;
  }
  auto resolved = comm::resolve(call, size(), defaults_);
  if (!resolved.ok()) {
    ErrorInfo info = resolved.error();
    info.message = fmt::format("QCCL rank {}, group '{}': {}", context.rank(), name_, info.message);
    info.rank = context.rank();
    info.operation = to_string(call.collective);
    throw Error(std::move(info));
  }
  if (place && suits_region(*resolved, *place->region, call.options)) {
    if (place->region->on_board) resolved->algorithm = Algorithm::one_shot;
    resolved->region = at.region;
    resolved->region_offset = at.offset;
  }
  auto plan = plans_.find(*resolved);
  const bool is_new = plan == nullptr;
  if (is_new) {
    auto codec = plans_.find_codec(resolved->compression);
    if (codec == nullptr) codec = make_codec(resolved->compression).take_or_throw();
    plan = std::make_shared<const engine::ExecutablePlan>(*resolved, size(), GroupRank(rank_), std::move(codec));
  }
  if (has_signature) {
    plans_.add(comm::signature_of(call, at), plan);
  } else if (is_new) {
    plans_.add(std::nullopt, plan);
  }
  return plan;
}

CallArguments CommunicatorState::make_arguments(const CollectiveCall& call, comm::Context& context) {
  auto place = find_region(call);
  CallArguments arguments;
  arguments.group = id_;
  arguments.plan = plan_of(call, place, context);
  if (const std::string wrong = wrong_buffers(*arguments.plan, call); !wrong.empty()) {
    throw wrong_argument(context, std::string(to_string(call.collective)), wrong);
  }
  arguments.input = static_cast<const std::byte*>(call.input);
  arguments.output = static_cast<std::byte*>(call.output);
  arguments.premul_factor = call.options.premul_factor;
  if (arguments.plan->codec() != nullptr) arguments.feedback = call.options.error_feedback.state();
  if (arguments.plan->call().region != 0) arguments.region = std::move(place->region);
  arguments.timeout = call.options.timeout ? Nanoseconds(*call.options.timeout) : timeout_;
  arguments.awaited = call.options.awaited;
  if (context.log()->is_on()) arguments.log_name = call.options.log_name;
  return arguments;
}

void CommunicatorState::run(const CollectiveCall& call) {
  if (is_automatic(call)) return run_automatic(call);
  std::shared_ptr<comm::Context> context;
  CallArguments arguments = prepare(call, context);
  run(std::move(arguments), *context);
}

void CommunicatorState::run(CallArguments&& arguments, comm::Context& context) {
  if (record(arguments, context)) return;
  const auto work = context.driver().run(std::move(arguments));
  if (work != nullptr && work->failure()) throw Error(*work->failure());
}

bool CommunicatorState::record(CallArguments& arguments, comm::Context& context) {
  if (!context.recorder().may_record()) return false;
  make_work(arguments, context);
  return context.recorder().record(arguments);
}

// Without memory for it the recording ends, as with a wrong call.
void CommunicatorState::make_work(CallArguments& arguments, comm::Context& context) {
  if (arguments.work != nullptr) return;
  try {
    arguments.work = context.driver().make_work();
  } catch (...) {
    context.recorder().cancel();
    throw;
  }
}

std::shared_ptr<WorkState> CommunicatorState::post(const CollectiveCall& call) {
  if (is_automatic(call)) return post_automatic(call);
  std::shared_ptr<comm::Context> context;
  CallArguments arguments = prepare(call, context);
  return begin(std::move(arguments), context);
}

std::shared_ptr<WorkState> CommunicatorState::begin(CallArguments arguments,
                                                    const std::shared_ptr<comm::Context>& context) {
  make_work(arguments, *context);
  auto work = arguments.work;
  work->context = context;
  if (record(arguments, *context)) return work;
  make_room(*context, {&arguments, 1});
  context->driver().post(std::move(arguments));
  return work;
}

namespace {

bool is_collective(const CallArguments& arguments) { return !arguments.message; }

}  // namespace

void CommunicatorState::make_room(comm::Context& context, std::span<CallArguments> calls) {
  const auto collectives = static_cast<std::size_t>(std::count_if(calls.begin(), calls.end(), is_collective));
  const std::size_t limit = engine::max_in_flight(ranks_.size());
  const auto has_room = [&] { return in_flight_->load(std::memory_order_relaxed) + collectives <= limit; };
  if (!has_room()) context.driver().wait_until(has_room, kForever);
  for (CallArguments& arguments : calls) {
    if (is_collective(arguments)) arguments.work->count_in(in_flight_);
  }
}

engine::ArgumentsList CommunicatorState::post_all_but_last(comm::Context& context, engine::ArgumentsList calls) {
  const std::size_t limit = engine::max_in_flight(ranks_.size());
  if (calls.size() <= limit) {
    make_room(context, calls);
    return calls;
  }
  const auto collectives = std::stable_partition(calls.begin(), calls.end(), std::not_fn(is_collective));
  const auto window = static_cast<std::ptrdiff_t>(std::max<std::size_t>(1, limit / 2));
  auto begin = calls.begin(), end = collectives + std::min(window, calls.end() - collectives);
  while (true) {
    engine::ArgumentsList part(std::make_move_iterator(begin), std::make_move_iterator(end));
    make_room(context, part);
    if (end == calls.end()) return part;
    context.driver().post(std::move(part));
    begin = end;
    end += std::min(window, calls.end() - end);
  }
}

void CommunicatorState::abort(const std::string& reason) {
  const auto context = this->context();
  context->driver().with_engine([&](engine::Engine& engine) {
    engine.groups().fail(
        id_, {.kind = ErrorKind::aborted,
              .message = fmt::format("QCCL rank {}, group '{}': aborted: {}", context->rank(), name_, reason)});
  });
}

}  // namespace qccl::internal
