#include "group/communicator_state.h"
#include "engine/progress/progress_driver.h"
#include "job/job_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

namespace qccl::internal {

using comm::CallPoster;
using comm::Context;
using comm::TimedCall;
using engine::CallArguments;

namespace {

comm::CallBatch::Recording end_recording(Context& context, const char* end) {
  comm::CallBatch::Recording recording = context.call_batch().end();
  if (recording.work != nullptr) return recording;
  throw Error({.kind = ErrorKind::misuse,
               .message = fmt::format("QCCL rank {}: {} without group_start() in this thread, or a call in between was "
                                      "refused",
                                      context.rank(), end),
               .rank = context.rank()});
}

}  // namespace

CommunicatorState::CommunicatorState(const std::shared_ptr<Context>& context, comm::GroupIdentity group,
                                     const comm::GroupAgreement& agreement)
    : group_(std::move(group)),
      child_ids_(group_.id),
      poster_(group_.id, group_.ranks.size()),
      context_(context),
      builder_(group_, *context, agreement),
      measured_(mutex_, builder_, group_, *context, agreement) {}

Result<std::shared_ptr<CommunicatorState>> CommunicatorState::open(std::shared_ptr<Context> context,
                                                                   comm::GroupIdentity group,
                                                                   const comm::GroupOrigin& origin) {
  // The other members wait for a group that this rank has no memory for: it tells them.
  try {
    auto agreement = context->groups().open(group, origin);
    if (agreement.ok()) {
      return std::shared_ptr<CommunicatorState>(new CommunicatorState(context, group, agreement.value()));
    }
    const ErrorInfo& failure = agreement.error();
    const bool is_own = failure.kind == ErrorKind::resource_exhausted && failure.peer == context->rank();
    if (is_own) context->groups().refuse(std::move(group));
    return agreement.failure();
  } catch (const std::bad_alloc&) {
    context->groups().refuse(std::move(group));
    throw;
  }
}

std::shared_ptr<Context> CommunicatorState::context() const {
  const std::lock_guard lock(mutex_);
  return usable_context();
}

// With mutex_ held.
const std::shared_ptr<Context>& CommunicatorState::usable_context() const {
  if (context_ == nullptr) {
    throw Error({.kind = ErrorKind::misuse,
                 .message = fmt::format("QCCL group '{}': this communicator is closed", group_.name)});
  }
  context_->usable().take_or_throw();
  return context_;
}

// A wrong call cancels the recording.
template <class Call>
BuiltCall CommunicatorState::build(const Call& call) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Context>& context = usable_context();
  try {
    return {context, builder_.build(call)};
  } catch (...) {
    context->call_batch().cancel();
    throw;
  }
}

// The calls that are left to post: none if this thread records.
template <class Call>
engine::ArgumentsList CommunicatorState::build_all(std::span<const Call> calls) {
  engine::ArgumentsList left;
  left.reserve(calls.size());
  for (const Call& call : calls) {
    BuiltCall built = build(call);
    if (!CallPoster::record(built.arguments, *built.context)) left.push_back(std::move(built.arguments));
  }
  return left;
}

template <class Call>
int CommunicatorState::run(const Call& call) {
  if constexpr (std::is_same_v<Call, CollectiveCall>) {
    if (const auto detour = detour_of(call)) [[unlikely]] {
      const auto context = this->context();
      const auto work = detour->post(call);
      context->driver().wait(*work, kForever);
      if (work->failure()) throw Error(*work->failure());
      return kAnySource;
    }
    if (measured_.counts(call)) [[unlikely]] {
      std::optional<TimedCall> timed = measured_.begin(call, *context());
      BuiltCall built = build(call);
      if (timed) timed->begin();
      const int source = CallPoster::run(std::move(built.arguments), *built.context);
      if (timed) timed->end();
      return source;
    }
  }
  BuiltCall built = build(call);
  return CallPoster::run(std::move(built.arguments), *built.context);
}

template <class Call>
std::shared_ptr<WorkState> CommunicatorState::post(const Call& call) {
  std::optional<TimedCall> timed;
  if constexpr (std::is_same_v<Call, CollectiveCall>) {
    if (const auto detour = detour_of(call)) [[unlikely]]
      return detour->post(call);
    if (measured_.counts(call)) timed = measured_.begin(call, *context());
  }
  BuiltCall built = build(call);
  if (timed) {
    timed->begin();
    CallPoster::make_work(built.arguments, *built.context);
    built.arguments.work->notify([timed = *timed] { timed.end(); });
  }
  return poster_.post(std::move(built.arguments), built.context);
}

template <class Call>
int CommunicatorState::run_all(std::span<const Call> calls) {
  const auto context = this->context();
  return poster_.run(build_all(calls), *context);
}

std::shared_ptr<WorkState> CommunicatorState::post_all(std::span<const CollectiveCall> calls) {
  const auto context = this->context();
  engine::ArgumentsList left = build_all(calls);
  // A recorded list has no work but that of group_end().
  if (auto recorded = context->call_batch().work()) return recorded;
  return poster_.post(std::move(left), internal::make_work(), context);
}

template int CommunicatorState::run(const CollectiveCall&);
template int CommunicatorState::run(const MessageCall&);
template int CommunicatorState::run_all(std::span<const CollectiveCall>);
template int CommunicatorState::run_all(std::span<const MessageCall>);
template std::shared_ptr<WorkState> CommunicatorState::post(const CollectiveCall&);
template std::shared_ptr<WorkState> CommunicatorState::post(const MessageCall&);

void CommunicatorState::take_detour(std::shared_ptr<Detour> detour) {
  const std::lock_guard lock(mutex_);
  usable_context();
  if (has_detour_.exchange(true)) throw Error(group_.failure(ErrorKind::misuse, "use_inside() twice"));
  detour_ = std::move(detour);
}

std::shared_ptr<Detour> CommunicatorState::detour() {
  const std::lock_guard lock(mutex_);
  return detour_;
}

std::shared_ptr<Detour> CommunicatorState::detour_of(const CollectiveCall& call) {
  if (!has_detour()) return nullptr;
  auto detour = this->detour();
  if (detour == nullptr || !detour->suits(call)) return nullptr;
  return context()->call_batch().work() == nullptr ? detour : nullptr;
}

void CommunicatorState::group_start() {
  const auto context = this->context();
  if (context->call_batch().start()) return;
  throw Error(
      {.kind = ErrorKind::misuse,
       .message = fmt::format("QCCL rank {}: group_start() twice without group_end() in one thread", context->rank()),
       .rank = context->rank()});
}

std::shared_ptr<WorkState> CommunicatorState::group_end() {
  const auto context = this->context();
  comm::CallBatch::Recording recording = end_recording(*context, "group_end()");
  return poster_.post(std::move(recording.calls), std::move(recording.work), context);
}

void CommunicatorState::refuse_recording(const char* what) const {
  if (context()->call_batch().work() == nullptr) return;
  throw Error(group_.failure(ErrorKind::misuse, fmt::format("no {} between group_start() and group_end()", what)));
}

void CommunicatorState::abort(const std::string& reason) {
  ErrorInfo failure = group_.failure(ErrorKind::aborted, "aborted: " + reason);
  std::unique_lock lock(mutex_);
  const auto closing = closing_.lock();
  const auto context = closing == nullptr ? usable_context() : closing;
  lock.unlock();
  context->driver().with_engine([&](engine::Engine& engine) { engine.groups().fail(group_.id, std::move(failure)); });
  if (const auto detour = this->detour()) detour->drain();
}

// Takes no memory.
void CommunicatorState::close() {
  std::unique_lock lock(mutex_);
  auto detour = detour_;
  if (detour != nullptr && context_ != nullptr && !context_->usable().ok()) {
    static_cast<void>(new std::shared_ptr(std::move(detour_)));  // its threads are the parent's, which they still use
    detour.reset();
  }
  lock.unlock();
  if (detour != nullptr) detour->close();
  lock.lock();
  const auto context = std::exchange(context_, nullptr);
  if (context == nullptr || !context->usable().ok()) return;
  closing_ = context;
  lock.unlock();
  poster_.wait_until_quiet(*context);
  context->groups().close(group_.id);
  lock.lock();
  detour = std::move(detour_);
  closing_.reset();
  lock.unlock();
}

double estimate_recorded(CommunicatorState& state) {
  const auto context = state.context();
  const comm::GroupIdentity& group = state.group();
  const comm::CallBatch::Recording recording = end_recording(*context, "group_estimate()");
  const auto is_own = [&group](const CallArguments& call) { return call.group == group.id; };
  if (!std::ranges::all_of(recording.calls, is_own)) {
    throw Error(group.failure(ErrorKind::misuse, "group_estimate() after calls of another group"));
  }
  return state.with_builder([&](const comm::CallBuilder& builder) {
    double seconds = 0;
    for (const CallArguments& call : recording.calls) seconds += predict_seconds(call, group, builder.defaults());
    return seconds;
  });
}

}  // namespace qccl::internal
