#include "work/completion_pool.h"

#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace qccl::torch_binding {

struct CompletionPool::State {
  const pid_t process = getpid();
  std::mutex mutex;
  std::condition_variable task_added;
  std::condition_variable changed;  // a task or a thread ended
  std::deque<Task> queue;
  int expected = 0;  // announced, not yet run
  int threads = 0;
  int idle = 0;           // threads that wait for a task, or start
  bool closing = false;   // threads end when the queue is empty
  bool stopping = false;  // threads end now

  bool foreign_process() const { return getpid() != process; }
  bool drain(std::chrono::milliseconds limit);
  bool stop(std::chrono::milliseconds limit);
};

CompletionPool::CompletionPool() : state_(std::make_shared<State>()) {}

CompletionPool::~CompletionPool() {
  if (state_->foreign_process()) {
    // The state's condition variables count waiters that exist only in the parent: destroying one hangs.
    new std::shared_ptr<State>(std::move(state_));
    return;
  }
  std::lock_guard lock(state_->mutex);
  state_->closing = true;
  state_->task_added.notify_all();
}

void CompletionPool::expect() {
  if (state_->foreign_process()) return;
  bool first = false;
  {
    std::lock_guard lock(state_->mutex);
    first = state_->threads == 0 && !state_->stopping;
    if (first) state_->threads = state_->idle = 1;
  }
  if (first) start_thread(state_);
  std::lock_guard lock(state_->mutex);
  ++state_->expected;
}

void CompletionPool::push(Task task) {
  if (state_->foreign_process()) return;
  std::lock_guard lock(state_->mutex);
  if (state_->stopping) {
    new Task(std::move(task));  // unrun and unfreed, see work()
    return;
  }
  state_->queue.push_back(std::move(task));
  state_->task_added.notify_one();
}

bool CompletionPool::drain(std::chrono::milliseconds limit) { return state_->drain(limit); }

bool CompletionPool::stop(std::chrono::milliseconds limit) { return state_->stop(limit); }

void CompletionPool::end(const Threads& threads, std::chrono::milliseconds limit) {
  const auto state = threads.lock();
  if (state == nullptr) return;
  state->drain(limit);
  state->stop(limit);
}

bool CompletionPool::State::drain(std::chrono::milliseconds limit) {
  if (foreign_process()) return true;
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, limit, [this] { return expected == 0; });
}

bool CompletionPool::State::stop(std::chrono::milliseconds limit) {
  if (foreign_process()) return true;
  std::unique_lock lock(mutex);
  stopping = true;
  task_added.notify_all();
  return changed.wait_for(lock, limit, [this] { return threads == 0; });
}

// The caller has counted the thread. Detached: stop() waits on the count instead of joining, so
// that a task may drop the last reference to its own pool.
void CompletionPool::start_thread(const std::shared_ptr<State>& state) {
  try {
    std::thread([state] { work(state); }).detach();
  } catch (const std::system_error&) {
    std::lock_guard lock(state->mutex);
    --state->threads;  // the existing threads carry on
    --state->idle;
    if (state->threads == 0) throw;
  }
}

void CompletionPool::work(const std::shared_ptr<State>& state) {
  pthread_setname_np(pthread_self(), "qccl-complete");
  std::unique_lock lock(state->mutex);
  while (true) {
    state->task_added.wait(lock, [&] { return state->stopping || state->closing || !state->queue.empty(); });
    --state->idle;
    if (state->stopping || state->queue.empty()) break;
    Task task = std::move(state->queue.front());
    state->queue.pop_front();
    const bool reserve = state->idle == 0;
    if (reserve) {
      ++state->threads;
      ++state->idle;
    }
    lock.unlock();
    if (reserve) start_thread(state);
    task();
    task = nullptr;
    lock.lock();
    ++state->idle;
    --state->expected;
    state->changed.notify_all();
  }
  // The remaining tasks belong to operations that never ended, or to a process that is ending:
  // running or freeing them could need an interpreter that is gone.
  if (--state->threads == 0 && state->stopping && !state->queue.empty()) {
    new std::deque<Task>(std::move(state->queue));
  }
  state->changed.notify_all();
}

}  // namespace qccl::torch_binding
