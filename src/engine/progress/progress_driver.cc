#include "engine/progress/progress_driver.h"

#include <algorithm>
#include <exception>
#include <new>

#include "kernels/float_environment.h"

namespace qccl::engine {
namespace {

using kernels::DefaultFloatEnvironment;

// Looks at the board before the first full round of progress: some microseconds, or turns of the ranks that share
// cores.
constexpr int kBoardTries = 256;
// But no longer than this: where more wants the cores than these ranks, a turn takes the others' time slices, and calls
// that differ must meet in the sockets within kMismatchPatience.
constexpr Nanoseconds kBoardTime = std::chrono::milliseconds(5);

// A rank that shares its core makes so many looks before it lets another rank run, because ranks on other cores may be
// about to publish. With 4 ranks on 2 cores an operation took 3.4 us with a change of ranks at every look, and 2.1 with
// one at every second to twelfth.
constexpr int kLooksATurn = 4;

// For so long a thread that waits keeps its core to itself; then it lets others have it between two looks: there may be
// ranks on it that this one can't know of, of other jobs or in other containers.
constexpr Nanoseconds kAloneFor = std::chrono::microseconds(5);

// How long the progress thread polls for the next slice of an operation that moves, where ranks do not share cores: to
// sleep and be woken for each took two calls in flight, of 1 and 6 MB over shared memory, from 1.15 times a blocking
// call's time to 1.4. Not longer: the program's own threads want the core.
constexpr Nanoseconds kBackgroundSpin = std::chrono::microseconds(20);

// Calls that are done on the spot before the next round of progress: some 100 us.
constexpr int kExchangesARound = 256;

// Calls that can be posted while another thread drives before their list needs more memory.
constexpr std::size_t kRoomForCalls = 16;

// For how long nothing has moved, without a look at the clock while something does.
class Stillness {
 public:
  void end() { since_ = TimePoint{}; }
  Nanoseconds until(TimePoint now) {
    if (since_ == TimePoint{}) since_ = now;
    return now - since_;
  }

 private:
  TimePoint since_{};
};

}  // namespace

ProgressDriver::ProgressDriver(Engine& engine, Transport& transport, const Clock& clock, ProgressDriverOptions options)
    : engine_(engine), transport_(transport), clock_(clock), options_(options) {
  // Calls seldom find the token taken: a program would meet its first such call, and allocate, at any time.
  inbox_.reserve(kRoomForCalls);
  running_.reserve(kRoomForCalls);
}

ProgressDriver::~ProgressDriver() { stop(); }

void ProgressDriver::start() {
  thread_ = std::thread([this] { progress_thread(); });
}

void ProgressDriver::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  attention_.store(true);
  transport_.wake();
  parked_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// ---- the token

// With `awaited` this thread will take it again in a moment: the progress thread, once awake, would have to be asked
// for it. Should this thread not come, the progress thread finds out when it looks in.
void ProgressDriver::release_token(bool awaited) {
  bool wake_progress = false;
  bool waiters = false;
  {
    const std::lock_guard lock(mutex_);
    taken_ = false;
    background_work_ = !engine_.idle() || !inbox_.empty();
    waiters = wanted_ > 0;
    wake_progress = background_work_ && !waiters && !awaited;
  }
  if (waiters) released_.notify_all();
  if (wake_progress) parked_.notify_one();
}

// With mutex_ held by `lock`, which it gives up, and the token free: takes it and runs what earlier holders left.
ProgressDriver::Holder ProgressDriver::take_token(std::unique_lock<std::mutex>& lock, bool awaited) {
  taken_ = true;
  ++drives_;
  const bool has_inbox = !inbox_.empty();
  lock.unlock();
  if (has_inbox) run_inbox();
  return Holder(*this, awaited);
}

// With mutex_ held: makes the holder look at the inbox and at wanted_.
void ProgressDriver::call_holder() {
  attention_.store(true);
  if (sleeping_.load()) transport_.wake();
}

// With mutex_ held: one thread less wants the token. The progress thread does not take it while
// somebody wants it, so it has to be told when the last one leaves without it.
void ProgressDriver::leave_queue() {
  --wanted_;
  if (wanted_ == 0 && !taken_ && background_work_) parked_.notify_one();
}

bool ProgressDriver::run_or_enqueue(Entry entry, std::unique_lock<std::mutex>& lock, bool awaited) {
  if (taken_) {
    inbox_.push_back(std::move(entry));
    call_holder();
    return false;
  }
  const Holder holder = take_token(lock, awaited);
  {
    const DefaultFloatEnvironment environment;
    entry.run(engine_);
    engine_.progress();
  }
  complete_all();
  return true;
}

// ---- user threads

// When the program made the calls, which is before they get the token.
void ProgressDriver::stamp(std::span<CallArguments> calls) const {
  if (!engine_.is_logging()) return;
  const TimePoint now = clock_.now();
  for (CallArguments& each : calls) each.posted = now;
}

void ProgressDriver::post(CallArguments&& arguments) {
  stamp({&arguments, 1});
  const bool awaited = arguments.awaited;
  std::unique_lock lock(mutex_);
  run_or_enqueue({.call = std::move(arguments)}, lock, awaited);
}

void ProgressDriver::post(ArgumentsList calls) {
  stamp(calls);
  const bool awaited = std::all_of(calls.begin(), calls.end(), [](const CallArguments& each) { return each.awaited; });
  std::unique_lock lock(mutex_);
  run_or_enqueue({.calls = std::move(calls)}, lock, awaited);
}

// With the token: drives until `work` is done.
void ProgressDriver::finish(internal::WorkState& work) {
  if (!run_on_board(work)) drive_until([&] { return work.done(); }, kForever);
}

// A small operation alone on the board needs no sockets, timers or doorbells, unless it takes long.
bool ProgressDriver::run_on_board(const internal::WorkState& work) {
  if (!engine_.is_alone_on_board()) return false;
  const DefaultFloatEnvironment environment;
  const TimePoint end = options_.yield_while_spinning ? clock_.now() + kBoardTime : kForever;
  for (int i = 0; i < kBoardTries && engine_.is_alone_on_board() && !attention_.load(); ++i) {
    if (options_.yield_while_spinning && i % kLooksATurn == kLooksATurn - 1) {
      std::this_thread::yield();
      if (clock_.now() >= end) break;
    }
    engine_.advance_operations();
  }
  complete_works();
  if (work.done()) return true;  // release_token() tells the waiters
  notify_waiters();
  return false;
}

std::shared_ptr<internal::WorkState> ProgressDriver::run(CallArguments&& arguments) {
  stamp({&arguments, 1});
  std::unique_lock lock(mutex_);
  if (taken_) {
    auto work = works_.make();
    arguments.work = work;
    run_or_enqueue({.call = std::move(arguments)}, lock);
    lock.unlock();
    wait(*work, kForever);
    return work;
  }
  if (spare_work_ == nullptr) spare_work_ = works_.make();
  const Holder holder = take_token(lock);
  if (engine_.exchange_or_post(std::move(arguments), spare_work_)) {
    if (++exchanges_ == kExchangesARound) progress_once();
    return nullptr;
  }
  auto work = std::move(spare_work_);
  finish(*work);
  return work;
}

// Calls that are done on the spot look at nothing else; but this rank is to be heard of, and to hear of the others.
void ProgressDriver::progress_once() {
  exchanges_ = 0;
  {
    const DefaultFloatEnvironment environment;
    engine_.progress();
  }
  complete_all();
}

void ProgressDriver::run(ArgumentsList calls, internal::WorkState& work) {
  stamp(calls);
  std::unique_lock lock(mutex_);
  if (taken_) {
    run_or_enqueue({.calls = std::move(calls)}, lock);
    lock.unlock();
    wait(work, kForever);
    return;
  }
  const Holder holder = take_token(lock);
  for (CallArguments& each : calls) engine_.post(std::move(each));
  finish(work);
}

void ProgressDriver::with_engine(const std::function<void(Engine&)>& action) {
  struct Errand {
    const std::function<void(Engine&)>& action;
    std::exception_ptr thrown{};
    std::atomic<bool> ran{false};
  } errand{action};
  std::unique_lock lock(mutex_);
  if (taken_ && !has_room_in_inbox()) wait_for_token(lock);
  const auto run = [&errand](Engine& engine) {
    try {
      errand.action(engine);
    } catch (...) {
      errand.thrown = std::current_exception();
    }
    errand.ran.store(true);
  };
  if (!run_or_enqueue({.action = run}, lock)) await(errand.ran, lock);
  if (errand.thrown) std::rethrow_exception(errand.thrown);
}

// With mutex_ held: until an action that waits in the inbox has run.
void ProgressDriver::await(const std::atomic<bool>& ran, std::unique_lock<std::mutex>& lock) {
  ++wanted_;
  while (!ran.load()) {
    if (!taken_) {
      // The holder left before it saw the action: run the inbox ourselves.
      {
        const Holder holder = take_token(lock);
        complete_all();
      }
      lock.lock();
      continue;
    }
    released_.wait(lock);
  }
  leave_queue();
}

// With mutex_ held: makes room for one entry more, if there is memory.
bool ProgressDriver::has_room_in_inbox() {
  if (inbox_.size() < inbox_.capacity()) return true;
  try {
    inbox_.reserve(2 * inbox_.size());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// With mutex_ held: until the token is free.
void ProgressDriver::wait_for_token(std::unique_lock<std::mutex>& lock) {
  while (taken_) {
    ++wanted_;
    call_holder();
    released_.wait(lock);
    leave_queue();
  }
}

bool ProgressDriver::wait(internal::WorkState& work, TimePoint deadline) {
  return wait_until([&] { return work.done(); }, deadline);
}

bool ProgressDriver::wait_until(const std::function<bool()>& done, TimePoint deadline) {
  std::unique_lock lock(mutex_);
  while (!done()) {
    if (!taken_) {
      const Holder holder = take_token(lock);
      return drive_until(done, deadline);
    }
    ++wanted_;
    call_holder();
    if (deadline == kForever) {
      released_.wait(lock);
    } else {
      released_.wait_until(lock, deadline);
    }
    leave_queue();
    if (!done() && clock_.now() >= deadline) return false;
  }
  return true;
}

void ProgressDriver::drive_until_flushed(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  wait_for_token(lock);
  const Holder holder = take_token(lock);
  drive_until([this] { return engine_.has_no_notes() && transport_.flushed(); }, deadline);
}

// ---- driving

void ProgressDriver::Entry::run(Engine& engine) {
  if (call) return engine.post(std::move(*call));
  for (CallArguments& each : calls) engine.post(std::move(each));
  if (action) action(engine);
}

void ProgressDriver::run_inbox() {
  {
    const std::lock_guard lock(mutex_);
    running_.swap(inbox_);
  }
  if (running_.empty()) return;
  for (Entry& entry : running_) entry.run(engine_);
  running_.clear();
  notify_waiters();
}

void ProgressDriver::notify_waiters() {
  bool waiters = false;
  {
    const std::lock_guard lock(mutex_);
    waiters = wanted_ > 0;
  }
  if (waiters) released_.notify_all();
}

// Ends operations outside of the engine, then wakes their waiters.
void ProgressDriver::complete_all() {
  if (complete_works()) notify_waiters();
}

// Whether there were any.
bool ProgressDriver::complete_works() {
  bool any = false;
  while (const auto ended = engine_.take_ended()) {
    ended->complete();
    any = true;
  }
  return any;
}

bool ProgressDriver::drive_until(const std::function<bool()>& done, TimePoint deadline) {
  const DefaultFloatEnvironment environment;
  Stillness stillness;
  while (true) {
    if (attention_.exchange(false)) run_inbox();
    const bool moved = engine_.progress();
    complete_all();
    if (done()) return true;
    if (moved) {
      stillness.end();
      continue;
    }
    const TimePoint now = clock_.now();
    const Nanoseconds still = stillness.until(now);
    if (now >= deadline) return false;
    if (still < options_.spin) {
      if (options_.yield_while_spinning || still > kAloneFor) std::this_thread::yield();
      continue;
    }
    sleep_until_event(deadline);
  }
}

void ProgressDriver::sleep_until_event(TimePoint deadline) {
  sleeping_.store(true);
  try {
    if (!attention_.load()) transport_.sleep(std::min(deadline, engine_.next_timer()), clock_);
  } catch (const std::bad_alloc&) {  // what it saw is still there to be seen
  }
  sleeping_.store(false);
}

// ---- the progress thread

void ProgressDriver::progress_thread() {
  while (park()) {
    const Holder holder(*this);
    drive_in_background();
  }
}

// Waits until there is something to drive and takes the token; false at the end.
bool ProgressDriver::park() {
  std::unique_lock lock(mutex_);
  std::uint64_t drives_seen = drives_;
  while (!stopping_) {
    if (!taken_ && wanted_ == 0 && (background_work_ || drives_ == drives_seen)) {
      taken_ = true;
      return true;
    }
    drives_seen = drives_;
    parked_.wait_for(lock, options_.idle_check_interval,
                     [this] { return stopping_ || (background_work_ && !taken_ && wanted_ == 0); });
  }
  return false;
}

// Drives until a user thread wants the token or the driver stops.
void ProgressDriver::drive_in_background() {
  const DefaultFloatEnvironment environment;
  const Nanoseconds spin = options_.yield_while_spinning ? Nanoseconds{0} : kBackgroundSpin;
  Stillness stillness;
  while (true) {
    if (attention_.exchange(false)) {
      const std::lock_guard lock(mutex_);
      if (stopping_ || wanted_ > 0) return;
    }
    run_inbox();
    const bool moved = engine_.progress();
    complete_all();
    if (moved) {
      stillness.end();
      continue;
    }
    const Nanoseconds still = stillness.until(clock_.now());
    if (!engine_.idle() && still < spin) continue;
    sleep_until_event(kForever);
  }
}

}  // namespace qccl::engine
