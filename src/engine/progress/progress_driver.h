// Who runs the engine: exactly one thread at a time, the holder of the driver token.
//
// A progress thread lives from start() to stop(). A thread that waits for an operation takes the
// token from it, so that a blocking call pays no hand-off between threads; it hands the token back
// when its operation is done. While user threads drive by themselves the progress thread stays
// parked and only looks in from time to time, so that deaths, poison and heartbeats are dealt with
// in a process that computes for long.
//
// Sleeping is Transport::sleep(), never a futex while holding the token: it sees sockets,
// doorbells and deadlines. Threads that wait without the token sleep on a condition variable.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "engine/call/work_pool.h"
#include "engine/engine.h"

namespace qccl::engine {

struct ProgressDriverOptions {
  // How long a waiting thread polls after the last movement before it sleeps.
  Nanoseconds spin = std::chrono::microseconds(50);
  // Local ranks outnumber cores: lets others run between two looks.
  bool yield_while_spinning = false;
  // How often the parked progress thread looks in.
  Nanoseconds idle_check_interval = std::chrono::milliseconds(50);
};

// Thread-safe. The engine, transport and clock outlive it. Where it says nothing else, a call that the system refuses
// memory throws std::bad_alloc and has done nothing.
class ProgressDriver {
 public:
  ProgressDriver(Engine& engine, Transport& transport, const Clock& clock, ProgressDriverOptions options);
  ~ProgressDriver();

  void start();
  // Ends the progress thread. Operations in flight stay as they are.
  void stop();

  // Posts and begins the operation; it goes on without being waited for.
  void post(CallArguments&& arguments);
  // Posts a call that has no work yet, and drives until it has ended, in this thread where the token is free. Its work,
  // which is done; null where it ended well without one.
  std::shared_ptr<internal::WorkState> run(CallArguments&& arguments);
  // The same for several, which are all posted before any of them moves; run() ends with `work`.
  void post(ArgumentsList calls);
  void run(ArgumentsList calls, internal::WorkState& work);
  std::shared_ptr<internal::WorkState> make_work() { return works_.make(); }
  // Drives until everything committed has left this process, or `deadline` has come.
  void drive_until_flushed(TimePoint deadline);
  // Drives until `work` is done or `deadline` has come; true if done.
  bool wait(internal::WorkState& work, TimePoint deadline);
  // The same for anything that the end of an operation brings about.
  bool wait_until(const std::function<bool()>& done, TimePoint deadline);
  // Runs `action` on whatever thread holds the token, and returns when it has run; throws what it throws. It must not
  // block. Takes no memory itself.
  void with_engine(const std::function<void(Engine&)>& action);

 private:
  using Action = std::function<void(Engine&)>;
  // Gives the token back, however the holder leaves.
  class Holder {
   public:
    explicit Holder(ProgressDriver& driver, bool awaited = false) : driver_(driver), awaited_(awaited) {}
    ~Holder() { driver_.release_token(awaited_); }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

   private:
    ProgressDriver& driver_;
    const bool awaited_;
  };
  // What the holder is to do: post a call or several, which needs no memory, or anything else.
  struct Entry {
    std::optional<CallArguments> call{};
    ArgumentsList calls{};
    Action action{};
    void run(Engine& engine);
  };

  // Runs the entry at once with the token, or leaves it to the holder; true in the first case.
  bool run_or_enqueue(Entry entry, std::unique_lock<std::mutex>& lock, bool awaited = false);
  void stamp(std::span<CallArguments> calls) const;
  [[nodiscard]] Holder take_token(std::unique_lock<std::mutex>& lock, bool awaited = false);
  void progress_once();
  void finish(internal::WorkState& work);
  bool has_room_in_inbox();
  void wait_for_token(std::unique_lock<std::mutex>& lock);
  void await(const std::atomic<bool>& ran, std::unique_lock<std::mutex>& lock);
  void call_holder();
  void leave_queue();
  void run_inbox();
  void complete_all();
  bool complete_works();
  void notify_waiters();
  bool run_on_board(const internal::WorkState& work);
  bool drive_until(const std::function<bool()>& done, TimePoint deadline);
  void sleep_until_event(TimePoint deadline);
  void progress_thread();
  bool park();
  void drive_in_background();
  void release_token(bool awaited = false);

  Engine& engine_;
  Transport& transport_;
  const Clock& clock_;
  const ProgressDriverOptions options_;
  WorkPool works_;

  std::mutex mutex_;                  // guards what follows, never held while driving
  std::condition_variable released_;  // the token came free, or an operation ended
  std::condition_variable parked_;    // the progress thread waits here
  bool taken_ = false;                // the token
  int wanted_ = 0;                    // threads that wait for it
  bool stopping_ = false;
  bool background_work_ = false;  // operations run that nobody waits for
  std::uint64_t drives_ = 0;      // times that user threads took the token
  std::vector<Entry> inbox_;      // for the holder to run

  // The holder's own; it keeps its memory.
  std::vector<Entry> running_;
  std::shared_ptr<internal::WorkState> spare_work_;  // for the next run()
  int exchanges_ = 0;                                // since the last round of progress

  // True while the holder sleeps in the transport. Written by the holder, read by threads that
  // want its attention; both sides use sequential consistency with `attention_`, so that either
  // the sleeper sees the request or the requester sees the sleeper.
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> attention_{false};
  std::thread thread_;
};

}  // namespace qccl::engine
