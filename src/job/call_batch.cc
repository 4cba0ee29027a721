#include "job/call_batch.h"

#include <new>
#include <utility>

namespace qccl::comm {

using engine::CallArguments;
using internal::WorkState;

bool CallBatch::start() {
  const std::lock_guard lock(mutex_);
  if (by_thread_.contains(std::this_thread::get_id())) return false;
  auto work = std::make_shared<WorkState>();
  work->set_recorded(true);
  by_thread_.try_emplace(std::this_thread::get_id()).first->second.work = std::move(work);
  // Relaxed, here and below: only the thread that changes the count needs to see its own change.
  recordings_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

CallBatch::Recording CallBatch::end() {
  if (recordings_.load(std::memory_order_relaxed) == 0) return {};
  const std::lock_guard lock(mutex_);
  auto entry = by_thread_.extract(std::this_thread::get_id());
  if (entry.empty()) return {};
  recordings_.fetch_sub(1, std::memory_order_relaxed);
  return std::move(entry.mapped());
}

std::shared_ptr<WorkState> CallBatch::find_work() {
  const std::lock_guard lock(mutex_);
  const auto entry = by_thread_.find(std::this_thread::get_id());
  return entry == by_thread_.end() ? nullptr : entry->second.work;
}

void CallBatch::record(CallArguments&& arguments) {
  arguments.work->set_recorded(true);
  try {
    const std::lock_guard lock(mutex_);
    by_thread_.at(std::this_thread::get_id()).calls.push_back(std::move(arguments));
  } catch (const std::bad_alloc&) {
    cancel();
    throw;
  }
}

}  // namespace qccl::comm
