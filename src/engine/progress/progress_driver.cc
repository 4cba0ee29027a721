#include "engine/progress/progress_driver.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>

namespace qccl::engine {
namespace {

// A process that computes for long hears of its peers after this time.
constexpr Nanoseconds kIdleCheckInterval = std::chrono::milliseconds(50);

}  // namespace

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

void ProgressDriver::run_or_announce(Action&& action, bool coming_back) {
  if (!token_.try_take()) {
    if (!inbox_.add(std::move(action))) throw std::bad_alloc();
    if (token_.announce_action() || !token_.try_take()) return;
    action = {};  // the holder has gone, and this thread finds it in the inbox
  }
  const Holder holder{*this, coming_back};
  loop_.run_inbox();
  loop_.run(std::move(action));
}

void ProgressDriver::post(CallArguments&& arguments) {
  stamp({&arguments, 1});
  const bool awaited = arguments.awaited;
  run_or_announce({.call = std::move(arguments)}, awaited);
}

void ProgressDriver::post(ArgumentsList calls) {
  stamp(calls);
  const bool awaited = std::all_of(calls.begin(), calls.end(), [](const CallArguments& each) { return each.awaited; });
  run_or_announce({.calls = std::move(calls)}, awaited);
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
      const Holder holder{*this};
      loop_.run_inbox();
      loop_.complete_ended();
    }
  } else {
    if (!is_holder) token_.take_unless([] { return false; }, kForever);
    const Holder holder{*this};
    loop_.run_inbox();
    loop_.run({.other = run});
  }
  if (errand.thrown) std::rethrow_exception(errand.thrown);
}

bool ProgressDriver::wait(internal::WorkState& work, TimePoint deadline) {
  return wait_until([&] { return work.done(); }, deadline);
}

bool ProgressDriver::wait_until(const std::function<bool()>& done, TimePoint deadline) {
  if (!token_.take_unless(done, deadline)) return done();
  const Holder holder{*this};
  return loop_.drive_until(done, deadline);
}

void ProgressDriver::drive_until_flushed(TimePoint deadline) {
  if (!token_.take_unless([] { return false; }, deadline)) return;
  const Holder holder{*this};
  loop_.drive_until([this] { return engine_.has_sent_control() && transport_.flushed(); }, deadline);
}

}  // namespace qccl::engine
