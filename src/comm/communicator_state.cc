#include "comm/communicator_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <new>

#include "codec/registry.h"
#include "os/fork_list.h"

namespace qccl::internal {

using engine::Post;

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
  defaults_.table = &table_;
  defaults_.automatic = &automatic_;
  defaults_to_automatic_ = qccl::is_automatic(defaults_.compression);
  timeout_ = settings.options.timeout;
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
  context.driver().with_engine([this](engine::Engine& engine) { engine.notify_when_quiet(id_, quiet_); });
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

engine::Call CommunicatorState::call_of(Collective collective, std::size_t count, DataType type,
                                        const CallOptions& options) const {
  const std::lock_guard lock(mutex_);
  return comm::make_call(collective, count, type, size(), options, defaults_).take_or_throw();
}

std::string CommunicatorState::explain(Collective collective, std::size_t count, DataType type,
                                       const CallOptions& options) const {
  const engine::Call call = call_of(collective, count, type, options);
  const std::lock_guard lock(mutex_);
  return comm::explain_algorithm(call, size(), options, defaults_);
}

void CommunicatorState::set_compression(const Compression& compression) {
  const std::lock_guard lock(mutex_);
  defaults_.compression = compression;
  defaults_to_automatic_ = qccl::is_automatic(compression);
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
std::string CommunicatorState::wrong_buffers(const engine::Call& call, const Request& request) const {
  const std::uint64_t inputs = engine::input_elements(call, size(), rank_);
  const std::uint64_t outputs = engine::output_elements(call, size(), rank_);
  if (inputs > 0 && request.input == nullptr) return fmt::format("{} elements from a null buffer", inputs);
  if (outputs > 0 && request.output == nullptr) return fmt::format("{} elements into a null buffer", outputs);
  if (call.collective != Collective::all_to_all) return {};
  if (inputs > 0 && request.input == request.output) return "does not work in place, give it two buffers";
  if (call.counts.empty()) return {};
  const auto own = static_cast<std::size_t>(rank_);
  const std::uint64_t received = call.counts[own + static_cast<std::size_t>(size())];
  if (call.counts[own] == received) return {};
  return fmt::format("this rank sends itself {} elements and receives {}", call.counts[own], received);
}

Post CommunicatorState::make_post(const Request& request, comm::Context& context) {
  const comm::Extent extent = request.counts ? comm::Extent(*request.counts) : comm::Extent(request.count);
  auto call = comm::make_call(request.collective, extent, request.type, size(), request.options, defaults_);
  if (!call.ok()) {
    ErrorInfo info = call.error();
    info.message = fmt::format("QCCL rank {}, group '{}': {}", context.rank(), name_, info.message);
    info.rank = context.rank();
    info.operation = to_string(request.collective);
    throw Error(std::move(info));
  }
  Post post;
  post.group = id_;
  post.call = *call;
  post.input = static_cast<const std::byte*>(request.input);
  post.output = static_cast<std::byte*>(request.output);
  post.premul_factor = request.options.premul_factor;
  if (const std::string wrong = wrong_buffers(*call, request); !wrong.empty()) {
    throw wrong_argument(context, std::string(to_string(request.collective)), wrong);
  }
  if (!call->compression.is_none()) {
    post.codec = codecs_.get(call->compression).take_or_throw();
    post.feedback = request.options.error_feedback.state();
  }
  find_region(post, request);
  post.timeout = request.options.timeout ? Nanoseconds(*request.options.timeout) : timeout_;
  post.work = context.make_work();
  post.awaited = request.options.awaited;
  if (context.log()->is_on()) post.log_name = request.options.log_name;
  return post;
}

// Where ranks reduce what lies in buffers that others map: on the board all of it, if nothing else is asked for;
// between hosts what these algorithms do inside of one, for there each slice is read by one rank alone.
bool CommunicatorState::suits_region(const engine::Call& call, const engine::SharedRegion& region,
                                     const CallOptions& options) const {
  if (!region.on_board) return call.algorithm == Algorithm::hierarchical || call.algorithm == Algorithm::sra;
  return call.compression.is_none() && options.algorithm == Algorithm::automatic &&
         defaults_.algorithm == Algorithm::automatic;
}

// An all_reduce in place of a shared buffer goes without frames, or with frames that carry nothing inside a host,
// unless it is small or the call wants otherwise, or it is a premul_sum: no rank knows another's factor.
void CommunicatorState::find_region(Post& post, const Request& request) {
  const engine::Call& call = post.call;
  const bool may = call.collective == Collective::all_reduce && post.input == post.output && !call.board &&
                   !call.error_feedback && call.op != ReduceOp::premul_sum;
  if (!may || call.count == 0) return;
  auto place = regions_.find(request.output, request.count * element_bytes(request.type), rank_);
  if (!place || !suits_region(call, *place->region, request.options)) return;
  if (place->region->on_board) post.call.algorithm = Algorithm::one_shot;
  post.call.region = place->region->id;
  post.call.region_offset = place->offset;
  post.region = std::move(place->region);
}

void CommunicatorState::run(const Request& request) {
  std::shared_ptr<comm::Context> context;
  Post post = is_automatic(request) ? prepare_timed(request, context) : prepare(request, context);
  if (context->recorder().record(post)) return;
  const auto work = post.work;
  context->driver().run(std::move(post), *work);
  if (work->failure()) throw Error(*work->failure());
}

std::shared_ptr<WorkState> CommunicatorState::post(const Request& request) {
  std::shared_ptr<comm::Context> context;
  Post post = is_automatic(request) ? prepare_timed(request, context) : prepare(request, context);
  return begin(std::move(post), context);
}

std::shared_ptr<WorkState> CommunicatorState::begin(Post post, const std::shared_ptr<comm::Context>& context) {
  auto work = post.work;
  work->context = context;
  if (context->recorder().record(post)) return work;
  make_room(*context, {&post, 1});
  context->driver().post(std::move(post));
  return work;
}

namespace {

bool is_collective(const Post& post) { return !post.message; }

}  // namespace

void CommunicatorState::make_room(comm::Context& context, std::span<Post> posts) {
  const auto calls = static_cast<std::size_t>(std::count_if(posts.begin(), posts.end(), is_collective));
  const std::size_t limit = engine::max_in_flight(ranks_.size());
  const auto has_room = [&] { return in_flight_->load(std::memory_order_relaxed) + calls <= limit; };
  if (!has_room()) context.driver().wait_until(has_room, kForever);
  for (Post& post : posts) {
    if (is_collective(post)) post.work->count_in(in_flight_);
  }
}

engine::PostList CommunicatorState::post_all_but_last(comm::Context& context, engine::PostList posts) {
  const std::size_t limit = engine::max_in_flight(ranks_.size());
  if (posts.size() <= limit) {
    make_room(context, posts);
    return posts;
  }
  const auto collectives = std::stable_partition(posts.begin(), posts.end(), std::not_fn(is_collective));
  const auto window = static_cast<std::ptrdiff_t>(std::max<std::size_t>(1, limit / 2));
  auto begin = posts.begin(), end = collectives + std::min(window, posts.end() - collectives);
  while (true) {
    engine::PostList part(std::make_move_iterator(begin), std::make_move_iterator(end));
    make_room(context, part);
    if (end == posts.end()) return part;
    context.driver().post(std::move(part));
    begin = end;
    end += std::min(window, posts.end() - end);
  }
}

void CommunicatorState::abort(const std::string& reason) {
  const auto context = this->context();
  context->driver().with_engine([&](engine::Engine& engine) {
    engine.fail_group(
        id_, {.kind = ErrorKind::aborted,
              .message = fmt::format("QCCL rank {}, group '{}': aborted: {}", context->rank(), name_, reason)});
  });
}

}  // namespace qccl::internal
