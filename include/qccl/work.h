// A handle of an operation in flight.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "qccl/call.h"
#include "qccl/error.h"
#include "qccl/log.h"

namespace qccl {

namespace internal {
class WorkState;
}

// An operation in flight; a default Work is done. Copies name the same operation; dropping all of them never cancels
// it. The operation's buffers must stay valid and unmodified until wait() returns or throws. Thread-safe.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<internal::WorkState> state) : state_(std::move(state)) {}

  // Blocks until the operation is done, at most for its own timeout, and drives progress meanwhile. Throws the
  // operation's Error. If `timeout` passes first, throws Error(deadline_exceeded) with the operation's number and the
  // ranks it waits for; the operation itself continues, and the caller may wait again. Throws misuse for a call that
  // group_end() has not posted.
  void wait() const;
  void wait(Milliseconds timeout) const;
  bool done() const;
  // The failure of an operation that has ended; empty while it runs and when it succeeded.
  std::optional<ErrorInfo> error() const;
  // The operation's number in its group, as errors print it ("#7"); messages are numbered apart from collectives. For
  // calls grouped by group_start(), the number of the first. 0 until the operation has a number, and if its group had
  // failed before.
  std::uint64_t number() const;
  // The rank whose message a finished recv took; -1 for all other operations.
  int source() const;
  // When the operation was posted, began and ended, as the log records it. Empty until it ends, if the log does not
  // record it, and for group_end(), whose calls have times of their own.
  std::optional<OperationTimes> times() const;
  // Makes the stream wait for the end of the operation, and returns at once: work that is submitted to it from now on
  // sees the result. If the operation has failed, throws its Error. If it fails later the stream goes on all the same:
  // output that it has begun to write is filled with 0xFF bytes (NaN), a line is logged, and error() and the group's
  // later calls say why. The same as wait() where Communicator::stream_order() is StreamOrder::host, and for a stream
  // that shares a queue of the device with one of the library's (docs/gpu.md). A stream of another device than the
  // operation's may wait too. Block all operations of a group on a stream after posting them:
  // what is posted behind a gate waits for it. Throws misuse for a call that group_end() has not posted.
  void block(const DeviceStream& stream) const;
  // Calls `callback` once when the operation ends, on the thread that ends it, or at once if the operation has ended.
  // The callback must not block, throw, or call into the library except to query this Work.
  void notify(std::function<void()> callback) const;

 private:
  std::shared_ptr<internal::WorkState> state_;
};

}  // namespace qccl
