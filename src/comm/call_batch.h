// Calls between group_start() and group_end(): kept back, by thread, to be posted together.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/call/call_arguments.h"

namespace qccl::comm {

// Thread-safe; each thread sees its own recording.
class CallBatch {
 public:
  // What a thread has recorded, and the work that ends with the last of it.
  struct Recording {
    engine::ArgumentsList calls;
    std::shared_ptr<internal::WorkState> work;
  };

  // False if the thread records already.
  bool start();
  // The recording, which ends here; its work is null if there was none.
  Recording end();
  // Forgets what the thread has recorded, if it does.
  void cancel() { static_cast<void>(end()); }
  // The work of the recording of this thread, null if there is none.
  std::shared_ptr<internal::WorkState> work();
  // Some thread records, perhaps this one.
  bool may_record() const { return recordings_.load(std::memory_order_relaxed) != 0; }
  // Takes the call over, which has its work, if the thread records. Without memory for it the recording ends, as with a
  // wrong call.
  bool record(engine::CallArguments& arguments);

 private:
  std::atomic<int> recordings_{0};  // so that calls outside of all groups pay for one load
  std::mutex mutex_;
  std::unordered_map<std::thread::id, Recording> by_thread_;  // guarded by mutex_
};

}  // namespace qccl::comm
