#include "engine/progress/engine_loop.h"

#include <algorithm>
#include <new>
#include <thread>

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

// How long nothing has moved, without a look at the clock while something does.
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
    const Nanoseconds still = stillness.until(now);
    if (now >= deadline) return false;
    if (still < options_.spin) {
      if (options_.yield_while_spinning || still > kAloneFor) std::this_thread::yield();
      continue;
    }
    sleep_until_event(deadline, false);
  }
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
    const Nanoseconds still = stillness.until(clock_.now());
    if (!engine_.idle() && still < spin) continue;
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

}  // namespace qccl::engine
