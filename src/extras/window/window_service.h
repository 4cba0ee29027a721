// Receives what the members of a window's group put into the memory of this rank.
//
// A put is a header, and then its bytes, which are received into the window's memory. Both are messages. The service
// always has one receive posted for each member: of its next header, or of the bytes that the last one announced. So a
// member's puts are written one after the other. A receive that ends wakes the service's thread, which posts the next.
//
// | word of a header | meaning                                               |
// |------------------|-------------------------------------------------------|
// | 0                | HeaderKind                                            |
// | 1                | put: where in the window, in bytes                    |
// | 2                | put: how many bytes follow, which may be none         |
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "extras/window/signal_queue.h"
#include "job/context.h"
#include "qccl/communicator.h"

namespace qccl::comm {

enum class HeaderKind : std::uint64_t { put = 1, signal, goodbye };
using WindowHeader = std::array<std::uint64_t, 3>;

// Tags of a window's messages.
inline constexpr int kHeaderTag = 0;
inline constexpr int kBytesTag = 1;

// Whether `bytes` from `offset` on lie in a window of `window_bytes`.
constexpr bool fits(std::uint64_t offset, std::uint64_t bytes, std::uint64_t window_bytes) {
  return offset <= window_bytes && bytes <= window_bytes - offset;
}

// The members that have something for the service to do. Thread-safe.
class WindowEvents {
 public:
  explicit WindowEvents(std::size_t members) { ended_.reserve(members); }

  // Takes no memory: a member has one receive posted.
  void push(int member);
  // The service has to look at the deadlines.
  void wake();
  // Waits for one of these, or until the deadline. `ended` becomes the members.
  void wait(std::vector<int>& ended, TimePoint deadline, const Clock& clock);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> ended_;  // guarded by mutex_
  bool is_woken_ = false;   // guarded by mutex_
};

// Its functions throw Error. The group and the context outlive it.
class WindowService {
 public:
  // Posts the receives and starts the thread. `group` is the window's own.
  WindowService(Communicator group, std::span<std::byte> memory, Context& context);
  // Only after join().
  ~WindowService() = default;

  // Ends with a signal of the member; see Window::wait_signal().
  void await(int from, SignalQueue::Waiter waiter);
  // Whether all members have said goodbye, or the window was lost, before the deadline.
  bool wait_until_over(TimePoint deadline);
  // Call it when it is over. The failure that the window was lost by, or null.
  internal::SharedFailure join();
  // In a forked child, which does not have the thread.
  void detach() { thread_.detach(); }

 private:
  enum class Awaited : std::uint8_t { nothing, header, bytes };
  struct Sender {
    WindowHeader header{};
    Awaited awaited = Awaited::nothing;  // by the receive
    Work receive{};
  };

  void run();
  void advance(int member);
  bool take(int member);
  bool take_header(int member);
  void listen(int member);
  void lose(int member, const ErrorInfo& failure);
  void end(int member);
  void expire();
  void wake_waiters(bool any_ended);
  ErrorInfo failure_of(int member, ErrorKind kind, const std::string& what) const;

  Communicator group_;
  const std::span<std::byte> memory_;
  Context& context_;
  SignalQueue signals_;
  const std::shared_ptr<WindowEvents> events_;  // callbacks of receives may outlive the service
  const internal::SharedFailure no_memory_;     // for another failure
  std::vector<Sender> senders_;                 // the thread's
  int open_ = 0;                                // members that may still send; the thread's
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace qccl::comm
