// The library inside a host, for tests: ranks that are threads read each other's memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "qccl/qccl.h"

namespace qccl::testing {

// Where the ranks of one InsideGroup meet. Thread-safe.
class MeetingRoom {
 public:
  explicit MeetingRoom(std::size_t size) : calls_(size) {}

  // Waits for all ranks, then runs `work` with their calls, then waits until all have. Throws std::runtime_error if
  // that takes longer than the call's timeout, if it is aborted, and if the calls differ.
  void meet(std::size_t rank, const InsideCall& call,
            const std::function<void(const std::vector<InsideCall>& calls)>& work);
  void abort();

 private:
  void wait_for_all(std::unique_lock<std::mutex>& lock, Milliseconds timeout);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<InsideCall> calls_;  // guarded by mutex_, as what follows
  std::size_t arrived_ = 0;
  std::size_t turns_ = 0;
  bool is_aborted_ = false;
};

// Makes groups of threads of this process. Copies share their rooms.
class MemoryInside {
 public:
  InsideFactory factory() const;

  // Calls of all groups.
  int calls() const { return shared_->calls; }
  int aborts() const { return shared_->aborts; }
  // From the `number`th call of each group on, it throws "broken".
  void break_from(int number) { shared_->broken_from = number; }

  struct Shared {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<MeetingRoom>> rooms;  // guarded by mutex
    std::atomic<int> calls{0};
    std::atomic<int> aborts{0};
    std::atomic<int> broken_from{1'000'000};
  };

 private:
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace qccl::testing
