// The public Communicator, Work and init(): each call forwards to the state behind the handle and
// turns a failed Result into qccl::Error.
#include "qccl/communicator.h"

#include <fmt/format.h>

#include "base/memory_error.h"
#include "comm/communicator_state.h"
#include "engine/engine_report.h"

namespace qccl {
namespace {

using internal::CommunicatorState;

constexpr std::uint64_t kWorldGroup = 1;

using comm::CollectiveCall;
using comm::MessageCall;
using Counts = Communicator::Counts;

CollectiveCall call_v(Collective collective, const void* input, void* output, Counts counts, DataType type,
                      const CallOptions& options) {
  return {collective, input, output, 0, type, options, PooledVector<std::uint64_t>(counts.begin(), counts.end())};
}

CollectiveCall exchange_v(const void* input, Counts sends, void* output, Counts receives, DataType type,
                          const CallOptions& options) {
  CollectiveCall call = call_v(Collective::all_to_all, input, output, sends, type, options);
  call.counts->insert(call.counts->end(), receives.begin(), receives.end());
  return call;
}

std::vector<CollectiveCall> calls_of(Collective collective, std::span<const CallBuffers> buffers, DataType type,
                                     const CallOptions& options) {
  std::vector<CollectiveCall> calls;
  calls.reserve(buffers.size());
  for (const CallBuffers& each : buffers) {
    calls.push_back({collective, each.input, each.output, each.count, type, options});
  }
  return calls;
}

MessageCall send_call(const void* data, std::size_t count, DataType type, int to, const MessageOptions& options) {
  return {data, nullptr, false, count, type, to, options};
}

MessageCall recv_call(void* data, std::size_t count, DataType type, int from, const MessageOptions& options) {
  return {nullptr, data, true, count, type, from, options};
}

// A call that group_end() has not posted can't be waited for.
void check_posted(const internal::WorkState& work) {
  if (!work.is_recorded()) return;
  throw Error({.kind = ErrorKind::misuse, .message = "QCCL: wait() for a call that awaits its group_end()"});
}

// Throws, unless the operation has ended meanwhile.
void give_up(comm::Context& context, const internal::WorkState& work, Milliseconds timeout) {
  std::optional<ErrorInfo> failure;
  context.driver().with_engine(
      [&](engine::Engine& engine) { failure = engine::given_up(engine.parts(), engine.failures(), work, timeout); });
  if (work.done()) return;
  if (failure) throw Error(std::move(*failure));
  throw Error({.kind = ErrorKind::deadline_exceeded,
               .message = fmt::format("QCCL rank {}: the operation was still ending when the {} ms that wait() was "
                                      "given had passed",
                                      context.rank(), timeout.count()),
               .rank = context.rank()});
}

}  // namespace

// ---- Work

void Work::wait() const {
  if (state_ == nullptr) return;
  memory_checked([&] {
    check_posted(*state_);
    if (!state_->done()) {
      // A context that is gone has ended all its operations.
      if (const auto context = std::static_pointer_cast<comm::Context>(state_->context.lock())) {
        context->usable().take_or_throw();
        context->driver().wait(*state_, kForever);
      }
    }
    if (state_->failure()) throw Error(*state_->failure());
  });
}

void Work::wait(Milliseconds timeout) const {
  if (state_ == nullptr) return;
  memory_checked([&] {
    check_posted(*state_);
    if (!state_->done()) {
      if (const auto context = std::static_pointer_cast<comm::Context>(state_->context.lock())) {
        context->usable().take_or_throw();
        const TimePoint deadline = saturating_add(context->clock().now(), timeout);
        if (!context->driver().wait(*state_, deadline)) give_up(*context, *state_, timeout);
      }
    }
    if (state_->failure()) throw Error(*state_->failure());
  });
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

int Communicator::rank() const { return state_->rank(); }
int Communicator::size() const { return state_->size(); }
const std::string& Communicator::name() const { return state_->name(); }

void Communicator::all_reduce(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  memory_checked([&] { state_->run({Collective::all_reduce, input, output, count, type, options}); });
}

void Communicator::all_gather(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  memory_checked([&] { state_->run({Collective::all_gather, input, output, count, type, options}); });
}

void Communicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                  const CallOptions& options) {
  memory_checked([&] { state_->run({Collective::reduce_scatter, input, output, count, type, options}); });
}

void Communicator::reduce(const void* input, void* output, std::size_t count, DataType type,
                          const CallOptions& options) {
  memory_checked([&] { state_->run({Collective::reduce, input, output, count, type, options}); });
}

void Communicator::gather(const void* input, void* output, std::size_t count, DataType type,
                          const CallOptions& options) {
  memory_checked([&] { state_->run({Collective::gather, input, output, count, type, options}); });
}

void Communicator::scatter(const void* input, void* output, std::size_t count, DataType type,
                           const CallOptions& options) {
  memory_checked([&] { state_->run({Collective::scatter, input, output, count, type, options}); });
}

void Communicator::all_to_all(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  memory_checked([&] { state_->run({Collective::all_to_all, input, output, count, type, options}); });
}

void Communicator::broadcast(void* buffer, std::size_t count, DataType type, const CallOptions& options) {
  memory_checked([&] { state_->run({Collective::broadcast, buffer, buffer, count, type, options}); });
}

void Communicator::barrier(const CallOptions& options) {
  memory_checked([&] { state_->run({Collective::barrier, nullptr, nullptr, 0, DataType::uint8, options}); });
}

void Communicator::all_gather_v(const void* input, void* output, Counts counts, DataType type,
                                const CallOptions& options) {
  memory_checked([&] { state_->run(call_v(Collective::all_gather, input, output, counts, type, options)); });
}

void Communicator::reduce_scatter_v(const void* input, void* output, Counts counts, DataType type,
                                    const CallOptions& options) {
  memory_checked([&] { state_->run(call_v(Collective::reduce_scatter, input, output, counts, type, options)); });
}

void Communicator::gather_v(const void* input, void* output, Counts counts, DataType type, const CallOptions& options) {
  memory_checked([&] { state_->run(call_v(Collective::gather, input, output, counts, type, options)); });
}

void Communicator::scatter_v(const void* input, void* output, Counts counts, DataType type,
                             const CallOptions& options) {
  memory_checked([&] { state_->run(call_v(Collective::scatter, input, output, counts, type, options)); });
}

void Communicator::all_to_all_v(const void* input, Counts sends, void* output, Counts receives, DataType type,
                                const CallOptions& options) {
  memory_checked([&] { state_->run(exchange_v(input, sends, output, receives, type, options)); });
}

Work Communicator::all_reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                    const CallOptions& options) {
  return memory_checked([&] {
    return Work(state_->post({Collective::all_reduce, input, output, count, type, options}));
  });
}

Work Communicator::all_gather_async(const void* input, void* output, std::size_t count, DataType type,
                                    const CallOptions& options) {
  return memory_checked([&] {
    return Work(state_->post({Collective::all_gather, input, output, count, type, options}));
  });
}

Work Communicator::reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                                        const CallOptions& options) {
  return memory_checked([&] {
    return Work(state_->post({Collective::reduce_scatter, input, output, count, type, options}));
  });
}

Work Communicator::reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                const CallOptions& options) {
  return memory_checked([&] { return Work(state_->post({Collective::reduce, input, output, count, type, options})); });
}

Work Communicator::gather_async(const void* input, void* output, std::size_t count, DataType type,
                                const CallOptions& options) {
  return memory_checked([&] { return Work(state_->post({Collective::gather, input, output, count, type, options})); });
}

Work Communicator::scatter_async(const void* input, void* output, std::size_t count, DataType type,
                                 const CallOptions& options) {
  return memory_checked([&] { return Work(state_->post({Collective::scatter, input, output, count, type, options})); });
}

Work Communicator::all_to_all_async(const void* input, void* output, std::size_t count, DataType type,
                                    const CallOptions& options) {
  return memory_checked([&] {
    return Work(state_->post({Collective::all_to_all, input, output, count, type, options}));
  });
}

Work Communicator::broadcast_async(void* buffer, std::size_t count, DataType type, const CallOptions& options) {
  return memory_checked([&] {
    return Work(state_->post({Collective::broadcast, buffer, buffer, count, type, options}));
  });
}

Work Communicator::barrier_async(const CallOptions& options) {
  return memory_checked([&] {
    return Work(state_->post({Collective::barrier, nullptr, nullptr, 0, DataType::uint8, options}));
  });
}

Work Communicator::all_gather_v_async(const void* input, void* output, Counts counts, DataType type,
                                      const CallOptions& options) {
  return memory_checked(
      [&] { return Work(state_->post(call_v(Collective::all_gather, input, output, counts, type, options))); });
}

Work Communicator::reduce_scatter_v_async(const void* input, void* output, Counts counts, DataType type,
                                          const CallOptions& options) {
  return memory_checked(
      [&] { return Work(state_->post(call_v(Collective::reduce_scatter, input, output, counts, type, options))); });
}

Work Communicator::gather_v_async(const void* input, void* output, Counts counts, DataType type,
                                  const CallOptions& options) {
  return memory_checked(
      [&] { return Work(state_->post(call_v(Collective::gather, input, output, counts, type, options))); });
}

Work Communicator::scatter_v_async(const void* input, void* output, Counts counts, DataType type,
                                   const CallOptions& options) {
  return memory_checked(
      [&] { return Work(state_->post(call_v(Collective::scatter, input, output, counts, type, options))); });
}

Work Communicator::all_to_all_v_async(const void* input, Counts sends, void* output, Counts receives, DataType type,
                                      const CallOptions& options) {
  return memory_checked([&] { return Work(state_->post(exchange_v(input, sends, output, receives, type, options))); });
}

void Communicator::all_reduce_coalesced(std::span<const CallBuffers> buffers, DataType type,
                                        const CallOptions& options) {
  memory_checked([&] { state_->run(calls_of(Collective::all_reduce, buffers, type, options)); });
}

void Communicator::all_gather_coalesced(std::span<const CallBuffers> buffers, DataType type,
                                        const CallOptions& options) {
  memory_checked([&] { state_->run(calls_of(Collective::all_gather, buffers, type, options)); });
}

void Communicator::reduce_scatter_coalesced(std::span<const CallBuffers> buffers, DataType type,
                                            const CallOptions& options) {
  memory_checked([&] { state_->run(calls_of(Collective::reduce_scatter, buffers, type, options)); });
}

Work Communicator::all_reduce_coalesced_async(std::span<const CallBuffers> buffers, DataType type,
                                              const CallOptions& options) {
  return memory_checked([&] { return Work(state_->post(calls_of(Collective::all_reduce, buffers, type, options))); });
}

Work Communicator::all_gather_coalesced_async(std::span<const CallBuffers> buffers, DataType type,
                                              const CallOptions& options) {
  return memory_checked([&] { return Work(state_->post(calls_of(Collective::all_gather, buffers, type, options))); });
}

Work Communicator::reduce_scatter_coalesced_async(std::span<const CallBuffers> buffers, DataType type,
                                                  const CallOptions& options) {
  return memory_checked(
      [&] { return Work(state_->post(calls_of(Collective::reduce_scatter, buffers, type, options))); });
}

// ---- messages and calls in groups

void Communicator::send(const void* data, std::size_t count, DataType type, int to, const MessageOptions& options) {
  memory_checked([&] { state_->run(send_call(data, count, type, to, options)); });
}

int Communicator::recv(void* data, std::size_t count, DataType type, int from, const MessageOptions& options) {
  return memory_checked([&] { return state_->run(recv_call(data, count, type, from, options)); });
}

Work Communicator::send_async(const void* data, std::size_t count, DataType type, int to,
                              const MessageOptions& options) {
  return memory_checked([&] { return Work(state_->post(send_call(data, count, type, to, options))); });
}

Work Communicator::recv_async(void* data, std::size_t count, DataType type, int from, const MessageOptions& options) {
  return memory_checked([&] { return Work(state_->post(recv_call(data, count, type, from, options))); });
}

int Communicator::sendrecv(const Outgoing& outgoing, const Incoming& incoming, const MessageOptions& options) {
  return memory_checked([&] {
    return state_->run(send_call(outgoing.data, outgoing.count, outgoing.type, outgoing.to, options),
                       recv_call(incoming.data, incoming.count, incoming.type, incoming.from, options));
  });
}

void Communicator::group_start() {
  memory_checked([&] { state_->group_start(); });
}

Work Communicator::group_end() {
  return memory_checked([&] { return Work(state_->group_end()); });
}

void Communicator::check_parts(std::size_t whole, std::size_t part) const {
  if (whole == part * static_cast<std::size_t>(size())) return;
  throw Error({.kind = ErrorKind::invalid_argument,
               .message = fmt::format("QCCL group '{}': the larger buffer must have {} x {} elements, it has {}",
                                      name(), size(), part, whole),
               .rank = rank()});
}

// ---- other groups

Communicator Communicator::subgroup(const std::vector<int>& ranks, const std::string& name) {
  return memory_checked([&] { return Communicator(state_->subgroup(ranks, name)); });
}

std::optional<Communicator> Communicator::split(int colour, int key) {
  auto part = memory_checked([&] { return state_->split(colour, key); });
  if (part == nullptr) return std::nullopt;
  return Communicator(std::move(part));
}

Communicator Communicator::dup() {
  return memory_checked([&] { return Communicator(state_->dup()); });
}

std::shared_ptr<void> Communicator::allocate_bytes(std::size_t bytes) {
  return memory_checked([&] { return state_->regions().allocate(*state_, bytes); });
}

void Communicator::set_compression(const Compression& compression) {
  memory_checked([&] { state_->set_compression(compression); });
}

Compression Communicator::compression() const {
  return memory_checked([&] { return state_->defaults().compression; });
}

void Communicator::set_timeout(Milliseconds timeout) {
  memory_checked([&] { state_->set_timeout(timeout); });
}

Compression Communicator::effective_compression(Collective collective, std::size_t count, DataType type,
                                                const CallOptions& options) const {
  return memory_checked([&] { return state_->call_of(collective, count, type, options).compression; });
}

Compression Communicator::effective_compression(std::size_t count, DataType type, const CallOptions& options) const {
  return effective_compression(Collective::all_reduce, count, type, options);
}

Algorithm Communicator::effective_algorithm(Collective collective, std::size_t count, DataType type,
                                            const CallOptions& options) const {
  return memory_checked([&] { return state_->call_of(collective, count, type, options).algorithm; });
}

std::string Communicator::explain_algorithm(Collective collective, std::size_t count, DataType type,
                                            const CallOptions& options) const {
  return memory_checked([&] { return state_->explain(collective, count, type, options); });
}

std::vector<int> Communicator::hosts() const {
  return memory_checked([&] { return state_->context()->hosts_of(state_->ranks()); });
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

OperationLog Communicator::log() const {
  return memory_checked([&] { return OperationLog(state_->context()->log()); });
}

std::string Communicator::describe() const {
  return memory_checked([&] { return state_->context()->describe(name(), state_->ranks()); });
}

std::vector<std::string> Communicator::in_flight() const {
  return memory_checked([&] {
    std::vector<std::string> operations;
    state_->context()->driver().with_engine(
        [&](engine::Engine& engine) { operations = engine::describe_in_flight(engine.parts(), state_->id()); });
    return operations;
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
    auto context = comm::Context::create(options).take_or_throw();
    std::vector<int> everyone;
    for (int rank = 0; rank < context->world(); ++rank) everyone.push_back(rank);
    return Communicator(CommunicatorState::open(std::move(context), kWorldGroup, "world", everyone).take_or_throw());
  });
}

const char* version() { return QCCL_VERSION; }

}  // namespace qccl
