// What C's handles stand for: the state that NCCL's functions have nowhere else to keep.
// One a process and one a thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "qccl/qccl.h"

#include "nccl.h"

namespace qccl::nccl {

using CommPtr = std::shared_ptr<ncclComm>;

// Never destroyed, because a program's other threads may call until the process ends.
struct Process {
  std::atomic<unsigned> own_messages = 0;  // messages of ranks to themselves, which have a tag each
  std::mutex mutex;                        // guards what follows
  std::map<const ncclComm*, CommPtr> comms;
  std::map<std::string, std::shared_ptr<StoreServer>> servers;  // by the id's key
  std::map<void*, std::shared_ptr<void>> allocations;
  std::string last_error;
  bool has_shown_version = false;
  bool has_warned_of_messages = false;
};

inline Process& process() {
  static Process* const only = new Process;
  return *only;
}

// Once a process, with NCCL_DEBUG: a line on standard output that names QCCL. Throws as ncclGetVersion().
void show_version();

// An operation: posts itself, with CallOptions::awaited if the caller waits at once.
struct Operation {
  CommPtr comm;
  std::function<Work(Communicator&, bool awaited)> post;
  std::optional<DeviceStream> stream{};  // that its buffers come from; nothing for host memory
};

// Makes a communicator: blocks until its ranks have called, or it is stopped.
struct Making {
  CommPtr comm;
  std::function<std::optional<Communicator>(const std::stop_token&)> make;
  ncclComm_t* handle = nullptr;  // becomes null if it fails; null: the caller gets none
  std::stop_token stop{};        // stops it together with the communicator that it is made of
};

struct Thread {
  int depth = 0;  // of ncclGroupStart()
  ncclResult_t failure = ncclSuccess;
  bool is_in_progress = false;  // a communicator of the group is made or finalized in a thread of its own
  std::vector<Operation> operations;
  std::vector<Making> makings;
  std::string last_error;  // what ncclGetLastError() returned points into it
};

inline Thread& this_thread() {
  static thread_local Thread own;
  return own;
}

}  // namespace qccl::nccl
