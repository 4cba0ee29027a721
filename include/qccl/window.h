// Windows: memory of every rank of a group into which the others write while its owner does something else.
//
//   std::vector<float> inbox(1000);
//   qccl::Window window = comm.open_window(inbox.data(), inbox.size() * sizeof(float));   // on all ranks
//   if (comm.rank() == 0) window.put(update.data(), update.size() * sizeof(float), 1, 0);
//   if (comm.rank() == 1) window.wait_signal(0);                                          // the update is in the inbox
//   window.close();                                                                       // on all ranks
//
// Each put and each signal() counts as one signal of its sender; wait_signal() takes one. What a rank puts into the
// window of another arrives in the order of its calls, and a signal comes after all that its sender has put there
// before. Puts of different senders have no order among each other.
//
// A thread of the window, which sleeps while nothing comes, receives for this rank. While windows are open a rank also
// listens between its calls, so that small blocking calls of the job take some microseconds longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "qccl/communicator.h"

namespace qccl {

namespace internal {
class WindowState;
}  // namespace internal

// A handle: copies name the same window. Thread-safe. Works of put and signal are messages: if one misses its deadline
// or a member is lost, the window is lost, on all ranks, and every later call throws that error. The group that the
// window was opened on stays usable, as far as its own members live. Calls throw misuse once the window is closed and
// between group_start() and group_end().
class Window {
 public:
  explicit Window(std::shared_ptr<internal::WindowState> state) : state_(std::move(state)) {}

  // This rank's number in the group; the number of ranks.
  int rank() const;
  int size() const;
  // What the rank has opened the window with.
  std::size_t bytes(int rank) const;
  std::uint64_t label(int rank) const;

  // Writes `bytes` of `data` to the window of rank `to`, `offset` bytes into it. The put ends when `data` may be used
  // again, which may be before it has arrived. `to` may be this rank itself: then it ends when it has arrived. Throws
  // invalid_argument, and nothing is sent, if there is no such rank or its window has no room there.
  struct Put {
    const void* data;    // in this rank's memory
    std::size_t bytes;   // their number
    int to;              // rank in the group
    std::size_t offset;  // in bytes, into that rank's window
  };
  using Timeout = std::optional<Milliseconds>;  // of the call; unset: that of the group when the window was opened
  // Writes as described above, and signals. Blocks until the put ends; put_async() returns at once.
  void put(const Put& put, Timeout timeout = {}) { put_async(put, timeout).wait(); }
  Work put_async(const Put& put, Timeout timeout = {});
  // Signals without writing.
  void signal(int to, Timeout timeout = {}) { signal_async(to, timeout).wait(); }
  Work signal_async(int to, Timeout timeout = {});

  // Waits for a signal of rank `from` that no earlier call has taken. If the deadline passes, throws deadline_exceeded;
  // nothing is lost, and a later call takes the signal. Throws peer_lost if `from` has closed its window and all its
  // signals are taken.
  void wait_signal(int from, Timeout timeout = {}) { wait_signal_async(from, timeout).wait(); }
  Work wait_signal_async(int from, Timeout timeout = {});

  // Ends every call of the window with Error(aborted), here and on the other ranks; later calls throw it too. Does
  // nothing if the window is closed.
  void abort(const std::string& reason);
  // Waits until all ranks have closed the window and all that they have put here has arrived, at most for the group's
  // timeout; then it aborts the window on all ranks and throws deadline_exceeded. If the window was lost, throws that
  // error. In any case the library does not use the memory any more. Does nothing if the window is closed. The last
  // handle's destructor closes the window and drops the error.
  void close();

 private:
  std::shared_ptr<internal::WindowState> state_;
};

// Opens `bytes` of this rank's memory for the other ranks to write into. Ranks may give different sizes, none among
// them; they learn each other's, and a label that each may choose. The memory stays the caller's, and valid until the
// window is closed. Blocking, and collective over the group.
Window open_window(Communicator& group, void* memory, std::size_t bytes, std::uint64_t label = 0);

template <class Group>
Window NamedCalls<Group>::open_window(void* memory, std::size_t bytes, std::uint64_t label) {
  return qccl::open_window(self(), memory, bytes, label);
}

}  // namespace qccl
