// Posts a group's calls to the engine, or records them between group_start() and group_end(), and bounds how many are
// in flight.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>

#include "engine/call/call_arguments.h"

namespace qccl::comm {

class Context;

// The calls between group_start() and group_end(), recorded by thread. Thread-safe; each thread has a recording of its
// own.
class CallBatch {
 public:
  // The calls of a thread, and the work that ends with the last of them.
  struct Recording {
    engine::ArgumentsList calls;
    std::shared_ptr<internal::WorkState> work;
  };

  // False if the thread records already.
  bool start();
  // Ends the thread's recording and returns it; its work is null if there was none.
  Recording end();
  // Drops the thread's recording, if there is one.
  void cancel() { static_cast<void>(end()); }
  // The work of the thread's recording; null if there is none.
  std::shared_ptr<internal::WorkState> work() {
    return recordings_.load(std::memory_order_relaxed) == 0 ? nullptr : find_work();
  }
  // Adds a call, which has its work, to the thread's recording. Cancels the recording if there is no memory for it.
  void record(engine::CallArguments&& arguments);

 private:
  std::shared_ptr<internal::WorkState> find_work();

  std::atomic<int> recordings_{0};  // so that calls outside of all recordings pay for one load
  std::mutex mutex_;
  std::unordered_map<std::thread::id, Recording> by_thread_;  // guarded by mutex_
};

// Thread-safe. A call that fails for want of memory cancels the recording, as a wrong call does.
class CallPoster {
 public:
  // For the group of this identity, with so many ranks.
  CallPoster(std::uint64_t group, std::size_t ranks);

  static void make_work(engine::CallArguments& arguments, Context& context);
  // Adds the call to this thread's recording; returns false and does nothing if there is none.
  static bool record(engine::CallArguments& arguments, Context& context);

  // Records the call, or drives it to its end and throws its failure. Returns the rank that a received message came
  // from, else -1.
  static int run(engine::CallArguments&& arguments, Context& context);
  // Records the call, or posts it, and returns its work.
  std::shared_ptr<internal::WorkState> post(engine::CallArguments arguments, const std::shared_ptr<Context>& context);

  // The same for several calls, which are not recorded, as one. run() returns the last call's result.
  int run(engine::ArgumentsList calls, Context& context);
  std::shared_ptr<internal::WorkState> post(engine::ArgumentsList calls, std::shared_ptr<internal::WorkState> whole,
                                            const std::shared_ptr<Context>& context);

  // Waits until no operation of the group is in flight; each has a deadline. Takes no memory. Call it once.
  void wait_until_quiet(Context& context);

 private:
  void make_room(Context& context, std::span<engine::CallArguments> calls);
  engine::ArgumentsList post_all_but_last(Context& context, engine::ArgumentsList calls);

  const std::uint64_t group_;
  const std::size_t limit_;  // of collectives in flight
  const std::shared_ptr<std::atomic<std::size_t>> in_flight_ = std::make_shared<std::atomic<std::size_t>>(0);
  const std::shared_ptr<internal::WorkState> quiet_ = std::make_shared<internal::WorkState>();
};

}  // namespace qccl::comm
