// What other threads ask the holder of the driver token to do.
#pragma once

#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace qccl::engine {

// Posts a call or several, which needs no memory, or does anything else.
struct Action {
  std::optional<CallArguments> call{};
  ArgumentsList calls{};
  std::function<void(Engine&)> other{};

  void run(Engine& engine) {
    if (call) engine.post(std::move(*call));
    for (CallArguments& each : calls) engine.post(std::move(each));
    if (other) other(engine);
  }
};

// Thread-safe.
class ActionInbox {
 public:
  // Calls seldom find the token taken: without this a program would allocate for its first such call, at any time.
  ActionInbox() {
    waiting_.reserve(kRoom);
    running_.reserve(kRoom);
  }

  // False, and the action as it was, if there is no memory for it.
  bool add(Action&& action) {
    const std::lock_guard lock(mutex_);
    try {
      waiting_.push_back(std::move(action));
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  // By the holder: runs all actions in order.
  void run(Engine& engine) {
    {
      const std::lock_guard lock(mutex_);
      running_.swap(waiting_);
    }
    for (Action& action : running_) action.run(engine);
    running_.clear();
  }

 private:
  static constexpr std::size_t kRoom = 16;

  std::mutex mutex_;
  std::vector<Action> waiting_;  // guarded by mutex_
  std::vector<Action> running_;  // the holder's; both lists keep their memory
};

}  // namespace qccl::engine
