// The public Communicator, Work and init(): calls forward to the state behind the handle.
#include "qccl/communicator.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/result.h"
#include "engine/progress/progress_driver.h"
#include "group/communicator_state.h"
#include "job/call_memory.h"
#include "job/job_start.h"
#include "job/status/job_survey.h"

namespace qccl {
namespace {

using comm::CallBuilder;
using internal::CommunicatorState;

// use(resolved call, builder)
template <class Use>
auto with_resolved(CommunicatorState& state, const CollectiveCall& call, const Use& use) {
  return memory_checked([&] {
    return state.with_builder([&](const CallBuilder& builder) { return use(builder.resolve(call), builder); });
  });
}

// Throws, unless the operation has ended by now.
void give_up(comm::Context& context, const internal::WorkState& work, Milliseconds timeout) {
  std::optional<ErrorInfo> failure;
  context.driver().with_engine([&](engine::Engine& engine) { failure = engine.given_up(work, timeout); });
  if (work.done()) return;
  if (failure) throw Error(std::move(*failure));
  throw Error(
      {.kind = ErrorKind::deadline_exceeded,
       .message = fmt::format("QCCL rank {}: the operation had not ended when the timeout of wait(), {} ms, had "
                              "passed",
                              context.rank(), timeout.count()),
       .rank = context.rank()});
}

void check_posted(const internal::WorkState& work, const char* function) {
  if (!work.is_recorded()) return;
  throw Error({.kind = ErrorKind::misuse,
               .message = fmt::format("QCCL: {}() for a call that awaits its group_end()", function)});
}

// Null once the operation has ended: a context that is gone has ended all its operations.
std::shared_ptr<comm::Context> context_of(const internal::WorkState& work) {
  return work.done() ? nullptr : std::static_pointer_cast<comm::Context>(work.context.lock());
}

void wait_until(const std::shared_ptr<internal::WorkState>& work, std::optional<Milliseconds> timeout) {
  if (work == nullptr) return;
  memory_checked([&] {
    check_posted(*work, "wait");
    const auto context = context_of(*work);
    if (context != nullptr) {
      context->usable().take_or_throw();
      const TimePoint deadline =
          timeout ? saturating_add(context->clock().now(), saturating_nanoseconds(*timeout)) : kForever;
      if (!context->driver().wait(*work, deadline)) give_up(*context, *work, *timeout);
    }
    if (work->failure()) throw Error(*work->failure());
  });
}

// The operation has ended: the stream goes on, and nobody may ask for the failure.
void let_go_on(engine::Devices& devices, const engine::StreamGate& gate, const internal::WorkState& work) {
  const bool was_closed = devices.open_gate(gate);
  if (work.failure()) {
    log(LogLevel::error, "a stream goes on without the result of a call: " + work.failure()->message);
  } else if (!was_closed) {
    log(LogLevel::error, fmt::format("a stream went on before operation #{} had ended", work.number()));
  }
}

// False if the host has to wait.
bool close_gate(internal::WorkState& work, const DeviceStream& stream) {
  const auto context = context_of(work);
  if (context == nullptr) return false;
  context->usable().take_or_throw();
  engine::Devices& devices = *context->call_memory().devices;
  if (!devices.has_gates(stream.device).take_or_throw()) return false;
  work.set_gated();
  const auto gate = devices.close_gate(stream).take_or_throw();
  if (!gate) return false;
  try {
    work.notify([&devices, gate = *gate, &work] { let_go_on(devices, gate, work); });
  } catch (...) {
    devices.open_gate(*gate);
    throw;
  }
  return true;
}

}  // namespace

// ---- calls

std::vector<CollectiveCall> internal::calls_of(Collective collective, std::span<const CallBuffers> buffers,
                                               DataType type, const CallOptions& options) {
  return memory_checked([&] {
    std::vector<CollectiveCall> calls;
    calls.reserve(buffers.size());
    for (const CallBuffers& each : buffers) {
      calls.push_back({collective, each.input, each.output, each.count, type, options});
    }
    return calls;
  });
}

void internal::refuse_parts(const CommunicatorState& group, std::size_t whole, std::size_t part) {
  throw Error(group.group().failure(
      ErrorKind::invalid_argument,
      fmt::format("the larger buffer must have {} x {} elements, it has {}", group.group().size(), part, whole)));
}

// ---- Work

void Work::wait() const { wait_until(state_, std::nullopt); }
void Work::wait(Milliseconds timeout) const { wait_until(state_, timeout); }

void Work::block(const DeviceStream& stream) const {
  if (state_ == nullptr) return;
  const bool is_closed = memory_checked([&] {
    check_posted(*state_, "block");
    return close_gate(*state_, stream);
  });
  if (!is_closed) wait();
}

bool Work::done() const { return state_ == nullptr || state_->done(); }

std::optional<ErrorInfo> Work::error() const {
  if (state_ == nullptr || !state_->done() || !state_->failure()) return std::nullopt;
  return memory_checked([&] { return *state_->failure(); });
}

std::uint64_t Work::number() const { return state_ == nullptr ? 0 : state_->number(); }

int Work::source() const { return state_ == nullptr || !state_->done() ? -1 : state_->source(); }

std::optional<OperationTimes> Work::times() const {
  if (state_ == nullptr || !state_->done()) return std::nullopt;
  return state_->times();
}

void Work::notify(std::function<void()> callback) const {
  if (state_ == nullptr) return callback();
  memory_checked([&] { state_->notify(std::move(callback)); });
}

// ---- Communicator

int Communicator::rank() const { return state_->group().rank; }
int Communicator::size() const { return state_->group().size(); }
const std::string& Communicator::name() const { return state_->group().name; }

void Communicator::run(const CollectiveCall& call) {
  memory_checked([&] { state_->run(call); });
}
void Communicator::run(std::span<const CollectiveCall> calls) {
  memory_checked([&] { state_->run_all(calls); });
}
int Communicator::run(const MessageCall& call) {
  return memory_checked([&] { return state_->run(call); });
}
int Communicator::run(std::span<const MessageCall> calls) {
  return memory_checked([&] { return state_->run_all(calls); });
}

Work Communicator::post(const CollectiveCall& call) {
  return memory_checked([&] { return Work(state_->post(call)); });
}
Work Communicator::post(std::span<const CollectiveCall> calls) {
  return memory_checked([&] { return Work(state_->post_all(calls)); });
}
Work Communicator::post(const MessageCall& call) {
  return memory_checked([&] { return Work(state_->post(call)); });
}

double Communicator::estimate(const CollectiveCall& call) const {
  return with_resolved(*state_, call, [&](const engine::ResolvedCall& resolved, const CallBuilder& builder) {
    return comm::predict_seconds(resolved, size(), builder.defaults());
  });
}

CallChoice Communicator::choice(const CollectiveCall& call) const {
  return with_resolved(*state_, call, [](const engine::ResolvedCall& resolved, const CallBuilder&) {
    return CallChoice{resolved.compression, resolved.algorithm};
  });
}

std::string Communicator::explain(const CollectiveCall& call) const {
  return with_resolved(*state_, call, [&](const engine::ResolvedCall& resolved, const CallBuilder& builder) {
    return comm::explain_algorithm(resolved, size(), call.options, builder.defaults());
  });
}

void Communicator::group_start() {
  memory_checked([&] { state_->group_start(); });
}

Work Communicator::group_end() {
  return memory_checked([&] { return Work(state_->group_end()); });
}

double Communicator::group_estimate() {
  return memory_checked([&] { return internal::estimate_recorded(*state_); });
}

// ---- other groups

Communicator Communicator::subgroup(const std::vector<int>& ranks, const std::string& name,
                                    const std::stop_token& stop) {
  return memory_checked([&] { return Communicator(state_->subgroup(ranks, name, stop)); });
}

std::optional<Communicator> Communicator::split(int colour, int key) {
  auto part = memory_checked([&] { return state_->split(colour, key); });
  if (part == nullptr) return std::nullopt;
  return Communicator(std::move(part));
}

Communicator Communicator::dup() {
  return memory_checked([&] { return Communicator(state_->dup()); });
}

Communicator Communicator::shrink(const ShrinkOptions& options) {
  return memory_checked([&] { return Communicator(internal::shrink_group(*state_, options)); });
}

std::vector<LostRank> Communicator::failed() const {
  return memory_checked([&] {
    std::vector<LostRank> lost;
    engine::ProgressDriver& driver = state_->context()->driver();
    driver.look();
    driver.with_engine([&](engine::Engine& engine) { lost = engine.shrinker().lost(state_->group().id); });
    return lost;
  });
}

Work Communicator::when_failed() const {
  return memory_checked([&] {
    const auto context = state_->context();
    auto work = internal::make_work();
    work->context = context;
    context->driver().with_engine(
        [&](engine::Engine& engine) { engine.groups().notify_when_failed(state_->group().id, work); });
    return Work(std::move(work));
  });
}

Communicator Communicator::grow(const GrowOptions& options) {
  return memory_checked([&] { return Communicator(internal::grow_group(state_, options)); });
}

std::string Communicator::door() const {
  return memory_checked([&] {
    const auto context = state_->context();
    return context->door() == nullptr ? std::string() : context->door()->address();
  });
}

void Communicator::use_inside(const InsideFactory& make_inside) {
  memory_checked([&] { internal::use_inside(*state_, make_inside); });
}

std::shared_ptr<void> Communicator::allocate_bytes(std::size_t bytes) {
  return memory_checked([&] { return state_->allocate_mapped(bytes); });
}

void Communicator::set_compression(const Compression& compression) {
  memory_checked([&] { state_->with_builder([&](CallBuilder& builder) { builder.set_compression(compression); }); });
}

Compression Communicator::compression() const {
  return state_->with_builder([](const CallBuilder& builder) { return builder.compression(); });
}

void Communicator::set_timeout(Milliseconds timeout) {
  state_->with_builder([&](CallBuilder& builder) { builder.set_timeout(saturating_nanoseconds(timeout)); });
}

Milliseconds Communicator::timeout() const {
  return state_->with_builder(
      [](const CallBuilder& builder) { return std::chrono::duration_cast<Milliseconds>(builder.timeout()); });
}

std::vector<int> Communicator::world_ranks() const {
  const auto& ranks = state_->group().ranks;
  return {ranks.begin(), ranks.end()};
}

std::vector<int> Communicator::hosts() const {
  return memory_checked([&] { return state_->context()->hosts_of(state_->group().ranks); });
}

Traffic Communicator::traffic() const {
  return memory_checked([&] {
    Traffic traffic;
    state_->context()->driver().with_engine([&](engine::Engine& engine) {
      const engine::TrafficCounters& counters = engine.frame_sender().counters();
      traffic = {counters.payload_bytes, counters.header_bytes, counters.board_bytes};
    });
    return traffic;
  });
}

RankStatus Communicator::status() const {
  return memory_checked([&] { return state_->context()->survey().own(); });
}

std::vector<RankStatus> Communicator::job_status(Milliseconds patience) const {
  return memory_checked([&] { return state_->context()->survey().all(saturating_nanoseconds(patience)); });
}

OperationLog Communicator::log() const {
  return memory_checked([&] { return OperationLog(state_->context()->log()); });
}

std::string Communicator::describe() const {
  return memory_checked([&] { return state_->context()->describe(state_->group()); });
}

std::vector<std::string> Communicator::in_flight() const {
  return memory_checked([&] {
    std::vector<std::string> operations;
    state_->context()->driver().with_engine(
        [&](engine::Engine& engine) { operations = engine.describe_in_flight(state_->group().id); });
    return operations;
  });
}

StreamOrder Communicator::stream_order(int device) const {
  return memory_checked([&] {
    const bool waits = state_->context()->call_memory().devices->has_gates(device).take_or_throw();
    return waits ? StreamOrder::gate : StreamOrder::host;
  });
}

void Communicator::abort(const std::string& reason) {
  memory_checked([&] { state_->abort(reason); });
}

void Communicator::close() {
  memory_checked([&] { state_->close(); });
}

// ---- init

Communicator init(const InitOptions& options) {
  return memory_checked([&] {
    const TimePoint start = SteadyClock().now();
    auto state = internal::join_job(options);
    if (state == nullptr) {
      auto context = comm::Context::create(comm::start_of_job(options).take_or_throw()).take_or_throw();
      state = internal::open_world(context).take_or_throw();
    }
    const auto context = state->context();
    Communicator comm(std::move(state));
    if (options.inside) comm.use_inside(options.inside);
    log(LogLevel::info, fmt::format("rank {} of {} is ready after {:.3f} s", context->rank(), context->world(),
                                    std::chrono::duration<double>(context->clock().now() - start).count()));
    return comm;
  });
}

const char* version() { return QCCL_VERSION; }

}  // namespace qccl
