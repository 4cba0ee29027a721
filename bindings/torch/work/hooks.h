// Functions that a program registers with a process group to be called at events: the failure of the group, or the end
// of an operation (torch/csrc/distributed/c10d/Hooks.hpp).
#pragma once

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace qccl::torch_binding {

// Hooks by the number that they are registered with. Thread-safe. run() holds no lock while a hook runs, so a hook that
// is removed meanwhile may still run once.
template <class... Arguments>
class Hooks {
 public:
  using Hook = std::function<void(Arguments...)>;

  // Returns false, and keeps the earlier hook, if the number is taken.
  bool add(std::int64_t id, Hook hook) {
    auto held = std::make_shared<const Hook>(std::move(hook));
    const std::lock_guard lock(mutex_);
    is_empty_ = false;
    return hooks_.emplace(id, std::move(held)).second;
  }
  // Does nothing if there is none of that number.
  void remove(std::int64_t id) {
    std::shared_ptr<const Hook> held;  // dropped after the lock: it may need the interpreter's lock
    const std::lock_guard lock(mutex_);
    const auto found = hooks_.find(id);
    if (found == hooks_.end()) return;
    held = std::move(found->second);
    hooks_.erase(found);
    is_empty_ = hooks_.empty();
  }
  // Runs all hooks in the order of their numbers. One that throws becomes a warning, and the next one runs.
  void run(const Arguments&... arguments) const {
    if (is_empty_) return;
    for (const auto& hook : all()) {
      try {
        (*hook)(arguments...);
      } catch (const std::exception& error) {
        TORCH_WARN("qccl: a hook of the process group threw: ", error.what());
      }
    }
  }

 private:
  std::vector<std::shared_ptr<const Hook>> all() const {
    std::vector<std::shared_ptr<const Hook>> hooks;
    const std::lock_guard lock(mutex_);
    for (const auto& [id, hook] : hooks_) hooks.push_back(hook);
    return hooks;
  }

  std::atomic<bool> is_empty_ = true;  // changes with mutex_
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::shared_ptr<const Hook>> hooks_;  // guarded by mutex_
};

// Those of a process group.
struct GroupHooks {
  Hooks<> failure;  // run once, when a group's first failure is seen
  // Run for every operation that succeeded, with its Work's getCompletionKey() and milliseconds.
  Hooks<std::uint64_t, float> completion;
};

}  // namespace qccl::torch_binding
