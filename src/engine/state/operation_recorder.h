#pragma once

#include <memory>

#include "base/clock.h"
#include "engine/frames/frame_sender.h"
#include "engine/state/operation.h"

namespace qccl::internal {
class LogStore;
}

namespace qccl::engine {

// Writes operations to the communication log; the only code that takes times for it. One thread, but is_on(). The
// others outlive it.
class OperationRecorder {
 public:
  // `log` may be null: nothing is recorded.
  OperationRecorder(std::shared_ptr<internal::LogStore> log, const Clock& clock, FrameSender& frame_sender)
      : log_(std::move(log)), clock_(clock), frame_sender_(frame_sender) {}

  // Some operations may be logged. Any thread may ask.
  bool is_on() const;
  // The operation was posted.
  void begin(Operation& operation) const;
  // operation.advance(), measured.
  Result<bool> advance(Operation& operation) const;
  // The operation has ended, well if `failure` is null. Without memory for the record, the log lacks it.
  void end(Operation& operation, const ErrorInfo* failure) const;

 private:
  void add(Operation& operation, const ErrorInfo* failure) const;

  const std::shared_ptr<internal::LogStore> log_;
  const Clock& clock_;
  FrameSender& frame_sender_;
};

}  // namespace qccl::engine
