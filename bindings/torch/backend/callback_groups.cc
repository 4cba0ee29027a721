#include "backend/callback_groups.h"

#include <algorithm>
#include <utility>

#include "work/completion_order.h"

namespace qccl::torch_binding {

CallbackGroups::CallbackGroups(std::shared_ptr<SharedJob> job, Communicator group, const GroupSpec& spec)
    : job_(std::move(job)), group_(std::move(group)), compression_(spec.compression), timeout_(spec.timeout) {}

Communicator CallbackGroups::for_this_thread() {
  const std::string sequence = CompletionOrder::current_sequence();
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

void CallbackGroups::make(const std::string& sequence, std::promise<Communicator>& promise) {
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

void CallbackGroups::set_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  timeout_ = timeout;
  for (Communicator& group : all_with_lock_held()) group.set_timeout(timeout);
}

void CallbackGroups::set_compression(const Compression& compression) {
  const std::lock_guard lock(mutex_);
  compression_ = compression;
  for (Communicator& group : all_with_lock_held()) group.set_compression(compression);
}

std::optional<Compression> CallbackGroups::compression() const {
  const std::lock_guard lock(mutex_);
  return compression_;
}

std::vector<Communicator> CallbackGroups::all() const {
  const std::lock_guard lock(mutex_);
  return all_with_lock_held();
}

std::vector<Communicator> CallbackGroups::all_with_lock_held() const {
  std::vector<Communicator> groups{group_};
  for (const auto& [sequence, twin] : twins_) {
    if (twin.wait_for(std::chrono::seconds(0)) == std::future_status::ready) groups.push_back(twin.get());
  }
  return groups;
}

bool CallbackGroups::wait_until_made(std::chrono::steady_clock::time_point deadline) const {
  std::vector<Twin> twins;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [sequence, twin] : twins_) twins.push_back(twin);
  }
  return std::all_of(twins.begin(), twins.end(),
                     [deadline](const Twin& twin) { return twin.wait_until(deadline) == std::future_status::ready; });
}

void CallbackGroups::abort(const std::string& reason) {
  std::vector<Communicator> groups;
  {
    const std::lock_guard lock(mutex_);
    aborted_ = reason;
    groups = all_with_lock_held();
  }
  for (const Communicator& group : groups) job_->abort_group(group, reason);
}

}  // namespace qccl::torch_binding
