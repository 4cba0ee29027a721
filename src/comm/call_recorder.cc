#include "comm/call_recorder.h"

#include <utility>

namespace qccl::comm {

bool CallRecorder::start() {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = by_thread_.try_emplace(std::this_thread::get_id());
  if (!is_new) return false;
  entry->second.work = std::make_shared<internal::WorkState>();
  entry->second.work->set_held_back(true);
  // Relaxed, here and below: only the thread that counts itself in or out has to see it.
  recordings_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

CallRecorder::Recording CallRecorder::end() {
  if (recordings_.load(std::memory_order_relaxed) == 0) return {};
  const std::lock_guard lock(mutex_);
  auto entry = by_thread_.extract(std::this_thread::get_id());
  if (entry.empty()) return {};
  recordings_.fetch_sub(1, std::memory_order_relaxed);
  return std::move(entry.mapped());
}

std::shared_ptr<internal::WorkState> CallRecorder::work() {
  if (recordings_.load(std::memory_order_relaxed) == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto entry = by_thread_.find(std::this_thread::get_id());
  return entry == by_thread_.end() ? nullptr : entry->second.work;
}

bool CallRecorder::record(engine::Post& post) {
  if (recordings_.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard lock(mutex_);
  const auto entry = by_thread_.find(std::this_thread::get_id());
  if (entry == by_thread_.end()) return false;
  post.work->set_held_back(true);
  entry->second.posts.push_back(std::move(post));
  return true;
}

}  // namespace qccl::comm
