// A process group's communicator and its twins. Collectives that callbacks of futures start run in a twin, one for each
// sequence of a CallbackOrder. Ranks make a twin together, when such a callback starts its first collective.
#pragma once

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qccl/communicator.h"
#include "shared_job.h"
#include "work/callback_order.h"

namespace qccl::torch_binding {

// Thread-safe. Only of_sequence() and wait_until_made() wait for anything. Throws qccl::Error.
class CallbackGroups {
 public:
  CallbackGroups(std::shared_ptr<SharedJob> job, Communicator group, const GroupSpec& spec)
      : job_(std::move(job)),
        group_(std::move(group)),
        compression_(spec.settings.compression),
        timeout_(spec.timeout) {}

  // Returns the group, or its twin for the calls of callbacks. The first call for a sequence makes the twin, collective
  // over the ranks.
  Communicator of_sequence(const std::string& sequence) {
    if (sequence.empty()) return group_;
    std::optional<std::promise<Communicator>> making;
    Twin twin;
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) return group_;  // its calls report the reason
      const auto found = twins_.find(sequence);
      if (found != twins_.end()) {
        twin = found->second;
      } else {
        twin = making.emplace().get_future().share();
        twins_.emplace(sequence, twin);
      }
    }
    if (making) make(sequence, *making);
    return twin.get();
  }

  // Settings apply to the group and all twins, later ones included.
  void set_timeout(std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    if (timeout == std::exchange(timeout_, timeout)) return;
    for (Communicator& group : all_with_lock_held()) group.set_timeout(timeout);
  }
  void set_compression(const Compression& compression) {
    const std::lock_guard lock(mutex_);
    compression_ = compression;
    for (Communicator& group : all_with_lock_held()) group.set_compression(compression);
  }

  // The group and its twins, without those still being made.
  std::vector<Communicator> all() const {
    const std::lock_guard lock(mutex_);
    return all_with_lock_held();
  }

  // Returns whether every twin is made, or has failed, by the deadline.
  bool wait_until_made(std::chrono::steady_clock::time_point deadline) const {
    std::vector<Twin> twins;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [sequence, twin] : twins_) twins.push_back(twin);
    }
    return std::all_of(twins.begin(), twins.end(),
                       [deadline](const Twin& twin) { return twin.wait_until(deadline) == std::future_status::ready; });
  }

  // Aborts the group and its twins, including those still being made. No twin is made afterwards.
  void abort(const std::string& reason) {
    std::vector<Communicator> groups;
    {
      const std::lock_guard lock(mutex_);
      aborted_ = reason;
      groups = all_with_lock_held();
    }
    for (const Communicator& group : groups) job_->abort_group(group, reason);
  }

 private:
  using Twin = std::shared_future<Communicator>;

  void make(const std::string& sequence, std::promise<Communicator>& promise) {
    try {
      Communicator twin = job_->twin(group_, group_.name() + ", callbacks of " + sequence);
      const std::lock_guard lock(mutex_);
      if (compression_) twin.set_compression(*compression_);
      if (timeout_) twin.set_timeout(*timeout_);
      if (aborted_) job_->abort_group(twin, *aborted_);
      promise.set_value(std::move(twin));
    } catch (const std::exception&) {
      const std::lock_guard lock(mutex_);
      twins_.erase(sequence);
      promise.set_exception(std::current_exception());
    }
  }

  std::vector<Communicator> all_with_lock_held() const {
    std::vector<Communicator> groups{group_};
    for (const auto& [sequence, twin] : twins_) {
      if (twin.wait_for(std::chrono::seconds(0)) == std::future_status::ready) groups.push_back(twin.get());
    }
    return groups;
  }

  const std::shared_ptr<SharedJob> job_;
  Communicator group_;

  mutable std::mutex mutex_;  // guards the members below; never held while waiting for anything
  std::map<std::string, Twin> twins_;
  std::optional<Compression> compression_;
  std::optional<std::chrono::milliseconds> timeout_;
  std::optional<std::string> aborted_;  // the reason
};

}  // namespace qccl::torch_binding
