#include "engine/progress/progress_driver.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <thread>

#include "engine/progress/stillness.h"
#include "kernels/float_environment.h"

namespace qccl::engine {
namespace {

using kernels::DefaultFloatEnvironment;

// Rounds on the board before the first full round of progress: some microseconds, or turns of the ranks that share
// cores.
constexpr int kBoardRounds = 256;
// The longest time for them. If other processes want the cores too, a turn takes a time slice of theirs, and calls that
// differ must meet in the sockets within kMismatchPatience.
constexpr Nanoseconds kBoardTime = std::chrono::milliseconds(5);

// A rank that shares its core looks this often before it lets another rank run, because ranks on other cores may be
// about to publish. With 4 ranks on 2 cores an operation took 3.4 us with a change of ranks at every look, and 2.1 us
// with one at every second to twelfth.
constexpr int kLooksATurn = 4;

// How long a waiting thread keeps its core to itself. After that it yields between two looks, because the core may have
// threads that this rank cannot know of, of other jobs or in other containers.
constexpr Nanoseconds kAloneFor = std::chrono::microseconds(5);

// How long the progress thread polls for the next slice of a moving operation, where ranks do not share cores. Sleeping
// for each slice took two calls in flight, of 1 and 6 MB over shared memory, from 1.15 times a blocking call's time to
// 1.4. The limit is low because the program's own threads want the core.
constexpr Nanoseconds kBackgroundSpin = std::chrono::microseconds(20);

// Calls done on the spot before the next round of progress: some 100 us.
constexpr int kExchangesARound = 256;

// A process that computes for long hears of its peers after this time.
constexpr Nanoseconds kIdleCheckInterval = std::chrono::milliseconds(50);

// For a thread that posts a call. If the call is `awaited`, the thread will wait for it in a moment.
TokenUse use_of(bool awaited) { return awaited ? TokenUse::post_and_return : TokenUse::drive; }

}  // namespace

void EngineLoop::run_inbox() {
  if (!token_.take_announcement()) return;
  inbox_.run(engine_);
  token_.notify_waiters();
}

void EngineLoop::run(Action&& action) {
  {
    const DefaultFloatEnvironment environment;
    action.run(engine_);
    engine_.progress();
  }
  complete_ended();
}

void EngineLoop::note_exchange() {
  if (++exchanges_ < kExchangesARound) return;
  exchanges_ = 0;
  run(Action{});  // nothing but the round
}

void EngineLoop::finish(const internal::WorkState& work) {
  if (!run_on_board(work)) drive_until([&] { return work.done(); }, kForever);
}

// A small operation alone on the board needs no sockets, timers or doorbells, unless it takes long.
bool EngineLoop::run_on_board(const internal::WorkState& work) {
  if (!engine_.is_alone_on_board()) return false;
  const DefaultFloatEnvironment environment;
  const TimePoint end = options_.yield_while_spinning ? clock_.now() + kBoardTime : kForever;
  for (int i = 0; i < kBoardRounds && engine_.is_alone_on_board() && !token_.has_announcement(); ++i) {
    if (options_.yield_while_spinning && i % kLooksATurn == kLooksATurn - 1) {
      std::this_thread::yield();
      if (clock_.now() >= end) break;
    }
    engine_.advance_operations();
  }
  complete_works();
  if (work.done()) return true;  // the return of the token notifies the waiters
  token_.notify_waiters();
  return false;
}

void EngineLoop::complete_ended() {
  if (complete_works()) token_.notify_waiters();
}

// Whether there were any.
bool EngineLoop::complete_works() {
  bool any = false;
  while (const auto ended = engine_.take_ended()) {
    ended->complete();
    any = true;
  }
  return any;
}

bool EngineLoop::drive_until(const std::function<bool()>& done, TimePoint deadline) {
  const DefaultFloatEnvironment environment;
  Stillness stillness;
  while (true) {
    run_inbox();
    const bool moved = engine_.progress();
    complete_ended();
    if (done()) return true;
    if (moved) {
      stillness.end();
      continue;
    }
    const TimePoint now = clock_.now();
    if (now >= deadline) return false;
    if (!stillness.has_lasted(options_.spin, now)) {
      if (options_.yield_while_spinning || stillness.has_lasted(kAloneFor, now)) std::this_thread::yield();
      continue;
    }
    sleep_until_event(deadline, false);
  }
}

void EngineLoop::look() {
  sleep_until_event(clock_.now(), false);
  run(Action{});
}

void EngineLoop::drive_in_background() {
  const DefaultFloatEnvironment environment;
  const Nanoseconds spin = options_.yield_while_spinning ? Nanoseconds{0} : kBackgroundSpin;
  Stillness stillness;
  while (!token_.must_give_way()) {
    run_inbox();
    const bool moved = engine_.progress();
    complete_ended();
    if (moved) {
      stillness.end();
      continue;
    }
    if (!engine_.idle() && !stillness.has_lasted(spin, clock_.now())) continue;
    sleep_until_event(kForever, true);
  }
}

void EngineLoop::sleep_until_event(TimePoint deadline, bool in_background) {
  if (!token_.try_sleep(in_background)) return;
  try {
    transport_.sleep(std::min(deadline, engine_.next_timer()), clock_);
  } catch (const std::bad_alloc&) {  // the event is still there and ends the next sleep
  }
  token_.end_sleep();
}

ProgressDriver::ProgressDriver(Engine& engine, Transport& transport, const Clock& clock, PollingOptions options)
    : engine_(engine),
      transport_(transport),
      clock_(clock),
      token_([&transport] { transport.wake(); }),
      loop_(engine, transport, clock, options, token_, inbox_) {}

ProgressDriver::~ProgressDriver() { stop(); }

void ProgressDriver::start() {
  thread_ = std::thread([this] {
    while (token_.take_in_background(kIdleCheckInterval)) {
      const Holder holder{*this};
      loop_.drive_in_background();
    }
  });
}

void ProgressDriver::stop() {
  token_.stop();
  if (thread_.joinable()) thread_.join();
}

// When the program made the calls, which is before they get the token.
void ProgressDriver::stamp(std::span<CallArguments> calls) const {
  if (!engine_.is_logging()) return;
  const TimePoint now = clock_.now();
  for (CallArguments& each : calls) each.posted = now;
}

void ProgressDriver::run_or_announce(Action&& action, TokenUse use) {
  if (!token_.try_take()) {
    if (!inbox_.add(std::move(action))) throw std::bad_alloc();
    if (token_.announce_action() || !token_.try_take()) return;
    action = {};  // the holder has gone, and this thread finds it in the inbox
  }
  const Holder holder{*this, use};
  loop_.run_inbox();
  loop_.run(std::move(action));
}

void ProgressDriver::post(CallArguments&& arguments) {
  stamp({&arguments, 1});
  const TokenUse use = use_of(arguments.awaited);
  run_or_announce({.call = std::move(arguments)}, use);
}

void ProgressDriver::post(ArgumentsList calls) {
  stamp(calls);
  const bool awaited = std::all_of(calls.begin(), calls.end(), [](const CallArguments& each) { return each.awaited; });
  run_or_announce({.calls = std::move(calls)}, use_of(awaited));
}

std::shared_ptr<internal::WorkState> ProgressDriver::run(CallArguments&& arguments) {
  stamp({&arguments, 1});
  if (!token_.try_take()) {
    auto work = internal::make_work();
    arguments.work = work;
    run_or_announce({.call = std::move(arguments)});
    wait(*work, kForever);
    return work;
  }
  const Holder holder{*this};
  loop_.run_inbox();
  if (spare_work_ == nullptr) spare_work_ = internal::make_work();
  if (engine_.exchange_or_post(std::move(arguments), spare_work_)) {
    loop_.note_exchange();
    return nullptr;
  }
  auto work = std::move(spare_work_);
  loop_.finish(*work);
  return work;
}

void ProgressDriver::run(ArgumentsList calls, internal::WorkState& work) {
  stamp(calls);
  if (!token_.try_take()) {
    run_or_announce({.calls = std::move(calls)});
    wait(work, kForever);
    return;
  }
  const Holder holder{*this};
  loop_.run_inbox();
  for (CallArguments& each : calls) engine_.post(std::move(each));
  loop_.finish(work);
}

void ProgressDriver::with_engine(const std::function<void(Engine&)>& action) {
  struct Errand {
    const std::function<void(Engine&)>& action;
    std::exception_ptr thrown{};
    std::atomic<bool> ran{false};  // release and acquire: for what the action has done
  } errand{action};
  const auto run = [&errand](Engine& engine) {
    try {
      errand.action(engine);
    } catch (...) {
      errand.thrown = std::current_exception();
    }
    errand.ran.store(true, std::memory_order_release);
  };
  const auto has_run = [&errand] { return errand.ran.load(std::memory_order_acquire); };
  bool is_holder = token_.try_take();
  if (!is_holder && inbox_.add({.other = run})) {
    token_.announce_action();
    while (token_.take_unless(has_run, kForever)) {
      const Holder holder{*this, TokenUse::question};
      loop_.run_inbox();
      loop_.complete_ended();
    }
  } else {
    if (!is_holder) token_.take_unless([] { return false; }, kForever);
    const Holder holder{*this, TokenUse::question};
    loop_.run_inbox();
    loop_.run({.other = run});
  }
  if (errand.thrown) std::rethrow_exception(errand.thrown);
}

// A thread that drives looks by itself.
void ProgressDriver::look() {
  if (!token_.try_take()) return;
  const Holder holder{*this};
  loop_.run_inbox();
  loop_.look();
}

bool ProgressDriver::wait(internal::WorkState& work, TimePoint deadline) {
  return wait_until([&] { return work.done(); }, deadline);
}

bool ProgressDriver::wait_until(const std::function<bool()>& done, TimePoint deadline) {
  if (!token_.take_unless(done, deadline)) return done();
  const Holder holder{*this};
  return loop_.drive_until(done, deadline);
}

void ProgressDriver::leave() {
  TimePoint start, deadline;
  with_engine([&](Engine& engine) {
    engine.say_goodbye();
    start = engine.clock().look();
    deadline = saturating_add(start, engine.leave_patience());
  });
  if (!token_.take_unless([] { return false; }, deadline)) return;
  const Holder holder{*this};
  // The patience shrinks as peers say goodbye.
  const auto is_over = [&] { return engine_.clock().now() - start > engine_.leave_patience(); };
  const auto has_left = [&] { return engine_.has_sent_control() && transport_.flushed(); };
  loop_.drive_until([&] { return has_left() || is_over(); }, deadline);
  transport_.set_close_patience(engine_.leave_patience());
}

}  // namespace qccl::engine
