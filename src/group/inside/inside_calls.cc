#include "group/inside/inside_calls.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "engine/progress/progress_driver.h"
#include "group/communicator_state.h"
#include "group/inside/inside_steps.h"

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

void InsideQueue::push(std::shared_ptr<InsideJob> job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_one();
}

std::shared_ptr<InsideJob> InsideQueue::pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_closed_ || !jobs_.empty(); });
  if (jobs_.empty()) return nullptr;
  auto job = std::move(jobs_.front());
  jobs_.pop_front();
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
    : group_(group), context_(group.context()), failed_(watch_group(group)) {
  try {
    steps_ = std::make_unique<InsideSteps>(group, context_->clock(), make_inside);
    start_threads();
  } catch (const std::exception& thrown) {
    // The other members wait for this rank.
    fail(group.group().failure(ErrorKind::aborted, fmt::format("no group inside the host: {}", thrown.what())));
    throw;
  }
}

bool InsideCalls::suits(const CollectiveCall& call) const { return steps_->suits(call); }

void InsideCalls::start_threads() {
  failed_->notify([alarm = alarm_, failed = std::weak_ptr(failed_)] {
    const auto ended = failed.lock();
    ended == nullptr || ended->failure() ? alarm->ring() : alarm->end();
  });
  beginner_ = std::thread([this] { begin_jobs(); });
  ender_ = std::thread([this] { end_jobs(); });
  guard_ = std::thread([this] { end_with_group(); });
}

InsideCalls::~InsideCalls() {
  beginning_.close();
  if (beginner_.joinable()) beginner_.join();
  ending_.close();
  if (ender_.joinable()) ender_.join();
  alarm_->end();
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
  job->work = make_work();
  job->work->context = context_;
  return job;
}

std::shared_ptr<WorkState> InsideCalls::post(const CollectiveCall& call) {
  auto job = make_job(call);
  const auto work = job->work;
  const FeedbackState* const feedback = call.options.error_feedback.state().get();
  std::unique_lock lock(mutex_);
  if (feedback != nullptr && in_use_.contains(feedback)) {
    throw Error(group_.group().failure(ErrorKind::misuse, FeedbackState::kInUse));
  }
  room_.wait(lock, [this] { return in_flight_ < kMostInFlight; });
  if (feedback != nullptr) in_use_.insert(feedback);
  ++in_flight_;
  job->number = ++numbers_;
  work->set_number(job->number);
  beginning_.push(std::move(job));
  return work;
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
void InsideCalls::attempt(const InsideJob& job, const Step& step) {
  if (has_failed()) return;
  ErrorInfo failure{.kind = ErrorKind::aborted, .message = {}, .rank = context_->rank()};
  try {
    return step();
  } catch (const Error& error) {
    failure = error.info();
  } catch (const std::bad_alloc&) {
    failure.kind = ErrorKind::resource_exhausted;
    failure.message = "no memory";
  } catch (const std::exception& thrown) {
    if (is_known_soon()) return;
    failure.message = thrown.what();
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
  return context_->driver().wait(*failed_, context_->clock().now() + kDiagnosisTime);
}

void InsideCalls::fail(ErrorInfo failure) {
  context_->driver().with_engine(
      [&](engine::Engine& engine) { engine.groups().fail(group_.group().id, std::move(failure)); });
  context_->driver().wait(*failed_, kForever);
}

void InsideCalls::finish(InsideJob& job) {
  SharedFailure failure = has_failed() ? failed_->failure() : nullptr;
  {
    const std::lock_guard lock(mutex_);
    --in_flight_;
    if (!job.call.options.error_feedback.is_none()) in_use_.erase(job.call.options.error_feedback.state().get());
    room_.notify_all();
  }
  context_->driver().with_engine(
      [&](engine::Engine& engine) { engine.end_work(std::move(job.work), std::move(failure)); });
}

void InsideCalls::end_with_group() {
  if (!alarm_->wait()) return;
  steps_->abort();
  context_->driver().with_engine([&](engine::Engine& engine) {
    for (const auto& part : steps_->groups()) engine.groups().fail(part->group().id, *failed_->failure());
  });
}

void use_inside(CommunicatorState& state, const InsideFactory& make_inside) {
  state.refuse_recording("group inside the hosts");
  const comm::GroupIdentity& group = state.group();
  if (!comm::HostLayout(state.context()->hosts_of(group.ranks), group.rank).has_inside()) return;
  state.take_detour(std::make_shared<InsideCalls>(state, make_inside));
}

}  // namespace qccl::internal
