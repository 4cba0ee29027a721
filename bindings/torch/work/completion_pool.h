// The threads that complete futures. A future's callbacks are the user's code: they may take the interpreter's lock and
// wait for further collectives, so they never run on the library's progress thread, and no fixed number of threads is
// enough. One idle thread is always in reserve while a callback runs.
//
// A pool belongs to one SharedJob. Its threads share the state, so a pool may be destroyed by one of
// them. In a forked child the threads do not exist: there every call does nothing.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace qccl::torch_binding {

class CompletionPool {
  struct State;

 public:
  // Names the threads of a pool, whether or not it still exists; expired when none runs.
  using Threads = std::weak_ptr<State>;
  using Task = std::function<void()>;

  CompletionPool();
  // Lets queued tasks finish, without waiting for them.
  ~CompletionPool();
  CompletionPool(const CompletionPool&) = delete;
  CompletionPool& operator=(const CompletionPool&) = delete;

  // Announces a task that push() will bring. Starts the first thread.
  void expect();
  // Queues an expected task. Never blocks on a task and calls no user code.
  void push(Task task);
  // Waits until every expected task has run; false if `limit` passed first.
  bool drain(std::chrono::milliseconds limit);
  // Ends the threads once their current tasks are done and waits for them. Tasks still queued or
  // pushed later are never run and never freed. False if `limit` passed first.
  bool stop(std::chrono::milliseconds limit);

  Threads threads() const { return state_; }
  // Drains and stops, each within `limit`, even the threads of a destroyed pool whose task still runs. For the end of
  // the process: a thread that frees a tensor after the interpreter has ended crashes the process.
  static void end(const Threads& threads, std::chrono::milliseconds limit);

 private:
  static void start_thread(const std::shared_ptr<State>& state);
  static void work(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace qccl::torch_binding
