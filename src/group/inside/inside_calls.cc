#include "group/inside/inside_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "engine/progress/progress_driver.h"
#include "group/communicator_state.h"
#include "group/inside/inside_steps.h"
#include "job/context.h"

namespace qccl::internal {
namespace {

// Posting blocks beyond it.
constexpr std::size_t kMostInFlight = 256;
// A peer's end is seen by both libraries. QCCL says which rank it was, this much later at most.
constexpr Nanoseconds kDiagnosisTime = std::chrono::seconds(2);

// Of a group without a failure that QCCL has seen.
std::shared_ptr<WorkState> watch_group(CommunicatorState& group) {
  const auto context = group.context();
  auto failed = make_work();
  failed->context = context;
  context->driver().with_engine(
      [&](engine::Engine& engine) { engine.groups().notify_when_failed(group.group().id, failed); });
  return failed;
}

void wait_for(comm::Context& context, WorkState& work) {
  context.driver().wait(work, kForever);
  if (work.failure()) throw Error(*work.failure());
}

}  // namespace

// ---- InsideQueue

// One by one: a long list would be a deep recursion.
InsideQueue::~InsideQueue() {
  while (first_ != nullptr) first_ = std::move(first_->next);
}

void InsideQueue::push(std::shared_ptr<InsideJob> job) {
  const std::lock_guard lock(mutex_);
  InsideJob* const added = job.get();
  (first_ == nullptr ? first_ : last_->next) = std::move(job);
  last_ = added;
  changed_.notify_one();
}

std::shared_ptr<InsideJob> InsideQueue::pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_closed_ || first_ != nullptr; });
  if (first_ == nullptr) return nullptr;
  auto job = std::move(first_);
  first_ = std::move(job->next);
  return job;
}

void InsideQueue::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  changed_.notify_one();
}

// ---- InsideAlarm

void InsideAlarm::set(State state) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::quiet) return;
  state_ = state;
  changed_.notify_one();
}

void InsideAlarm::ring() { set(State::ringing); }
void InsideAlarm::end() { set(State::ended); }

bool InsideAlarm::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ != State::quiet; });
  return state_ == State::ringing;
}

// ---- InsideCalls

InsideCalls::InsideCalls(CommunicatorState& group, const InsideFactory& make_inside)
    : group_(group), context_(group.context()), group_end_(watch_group(group)) {
  try {
    steps_ = std::make_unique<InsideSteps>(group, *context_, make_inside);
    start_threads();
  } catch (const std::exception& thrown) {
    stop_threads();
    // The other members wait for this rank.
    fail(group.group().failure(ErrorKind::aborted, fmt::format("no group inside the host: {}", thrown.what())));
    throw;
  }
}

InsideCalls::~InsideCalls() { stop_threads(); }

bool InsideCalls::suits(const CollectiveCall& call) const { return steps_->suits(call); }

void InsideCalls::start_threads() {
  group_end_->notify([alarm = alarm_, end = std::weak_ptr(group_end_)] {
    const auto ended = end.lock();
    ended != nullptr && ended->failure() ? alarm->ring() : alarm->end();
  });
  beginner_ = std::thread([this] { begin_jobs(); });
  ender_ = std::thread([this] { end_jobs(); });
  guard_ = std::thread([this] { abort_with_group(); });
}

void InsideCalls::stop_threads() {
  beginning_.close();
  if (beginner_.joinable()) beginner_.join();
  ending_.close();
  if (ender_.joinable()) ender_.join();
  // The callback of the group's end may still be to come.
  has_ended() && group_end_->failure() ? alarm_->ring() : alarm_->end();
  if (guard_.joinable()) guard_.join();
}

std::shared_ptr<InsideJob> InsideCalls::make_job(const CollectiveCall& call) {
  auto job = std::make_shared<InsideJob>();
  job->call = call;
  group_.with_builder([&](comm::CallBuilder& builder) {
    const engine::CallArguments checked = builder.build(call);
    job->description = checked.plan->call().describe();
    job->fingerprint = checked.plan->call().fingerprint();
    job->deadline = saturating_add(context_->clock().now(), checked.timeout);
    job->call.options.compression =
        comm::choose_compression(call, group_.group().size(), builder.defaults()).take_or_throw();
  });
  job->between.reserve(steps_->shares());
  job->work = make_work();
  job->work->context = context_;
  return job;
}

// As long as the job is in flight, nobody else may use it.
void InsideCalls::claim_feedback(InsideJob& job) {
  const auto& state = job.call.options.error_feedback.state();
  if (state == nullptr || job.call.options.compression->is_none()) return;
  if (!state->claim(nullptr)) throw Error(group_.group().failure(ErrorKind::misuse, FeedbackState::kInUse));
  job.feedback = state;
}

std::shared_ptr<WorkState> InsideCalls::post(const CollectiveCall& call) {
  auto job = make_job(call);
  const auto work = job->work;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_closed_ || in_flight_ < kMostInFlight; });
  if (is_closed_) throw Error(group_.group().failure(ErrorKind::misuse, "this communicator is closed"));
  claim_feedback(*job);
  ++in_flight_;
  job->number = ++last_number_;
  work->set_number(job->number);
  beginning_.push(std::move(job));
  return work;
}

void InsideCalls::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return in_flight_ == 0; });
}

void InsideCalls::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  drain();
}

void InsideCalls::begin_jobs() {
  while (auto job = beginning_.pop()) {
    attempt(*job, [&] { steps_->begin(*job); });
    ending_.push(std::move(job));
  }
}

void InsideCalls::end_jobs() {
  while (const auto job = ending_.pop()) {
    for (const auto& work : job->between) {
      attempt(*job, [&] { wait_for(*context_, *work); });
      context_->driver().wait(*work, kForever);  // its buffers are the caller's again
    }
    attempt(*job, [&] { steps_->end(*job); });
    finish(*job);
  }
}

template <class Step>
void InsideCalls::attempt(const InsideJob& job, const Step& step) noexcept {
  if (has_ended()) return;
  try {
    run_step(job, step);
  } catch (const std::bad_alloc&) {
    run_out_of_memory();
  }
}

template <class Step>
void InsideCalls::run_step(const InsideJob& job, const Step& step) {
  ErrorInfo failure{.kind = ErrorKind::aborted, .message = {}, .rank = context_->rank()};
  try {
    return step();
  } catch (const Error& error) {
    failure = error.info();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& thrown) {
    if (is_known_soon()) return;
    failure.message = thrown.what();
  } catch (...) {
    if (is_known_soon()) return;
    failure.message = "the library inside the host threw no std::exception";
  }
  failure.message = fmt::format("QCCL rank {}, group '{}': {} #{} in {}: {}", context_->rank(), group_.group().name,
                                job.description, job.number, steps_->describe_host(), failure.message);
  failure.operation = to_string(job.call.collective);
  failure.sequence = job.number;
  fail(std::move(failure));
}

// Whether QCCL itself knows why.
bool InsideCalls::is_known_soon() {
  context_->driver().look();
  return context_->driver().wait(*group_end_, context_->clock().now() + kDiagnosisTime);
}

void InsideCalls::fail(ErrorInfo failure) {
  context_->driver().with_engine(
      [&](engine::Engine& engine) { engine.groups().fail(group_.group().id, std::move(failure)); });
  context_->driver().wait(*group_end_, kForever);
}

void InsideCalls::run_out_of_memory() {
  context_->driver().with_engine([&](engine::Engine& engine) { engine.groups().run_out_of_memory(group_.group().id); });
  context_->driver().wait(*group_end_, kForever);
}

// A group closes after its calls, so its end is a failure here.
void InsideCalls::finish(InsideJob& job) {
  SharedFailure failure = has_ended() ? group_end_->failure() : nullptr;
  settle_feedback(job, failure == nullptr);
  auto work = std::move(job.work);
  context_->driver().with_engine([&](engine::Engine& engine) { engine.end_work(std::move(work), std::move(failure)); });
  const std::lock_guard lock(mutex_);
  --in_flight_;
  changed_.notify_all();
}

// A call that ended well and was compressed has changed the residual of what this rank sent.
void InsideCalls::settle_feedback(InsideJob& job, bool well) {
  if (job.feedback == nullptr) return;
  FeedbackState& state = *job.feedback;
  const bool has_changed = well && job.share_feedback.counter() > state.counter();
  if (has_changed) {
    state.save(0, state.size());
    const float* const share = job.share_feedback.residual().data();
    for (const ResidualPart& part : job.residual_parts) {
      std::copy_n(share + part.of_share, part.count, state.residual() + part.of_whole);
    }
  }
  state.end(has_changed);
}

void InsideCalls::abort_with_group() {
  if (!alarm_->wait()) return;
  steps_->abort();
  context_->driver().with_engine([&](engine::Engine& engine) {
    for (const auto& part : steps_->groups()) {
      try {
        engine.groups().fail(part->group().id, *group_end_->failure());
      } catch (const std::bad_alloc&) {
        engine.groups().run_out_of_memory(part->group().id);
      }
    }
  });
}

void use_inside(CommunicatorState& state, const InsideFactory& make_inside) {
  state.refuse_recording("group inside the hosts");
  const comm::GroupIdentity& group = state.group();
  if (state.has_detour()) throw Error(group.failure(ErrorKind::misuse, "use_inside() twice"));
  if (!comm::HostLayout(state.context()->hosts_of(group.ranks), group.rank).has_inside()) return;
  state.take_detour(std::make_shared<InsideCalls>(state, make_inside));
}

}  // namespace qccl::internal
