#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "engine/call/call_arguments.h"

namespace qccl::comm {

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

}  // namespace qccl::comm
