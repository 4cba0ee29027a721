#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace qccl::engine {

class Compute;
struct ComputeContext;

// The parts of the caller's buffers that a call reads and writes; they may overlap.
struct DeviceBuffers {
  const std::byte* input = nullptr;
  std::size_t input_bytes = 0;
  std::byte* output = nullptr;
  std::size_t output_bytes = 0;
};

// A device's part in a call on its memory: what it does before the operation and after it, and what it computes of it.
// Calls on host memory have none, but for those that wait for a stream.
//
// One call at a time. One thread at a time: the caller's until the call is posted, then the engine's. Nothing blocks
// but drain() and give_back().
class DevicePart {
 public:
  // What the operation reads and writes.
  virtual const std::byte* input() const = 0;
  virtual std::byte* output() const = 0;

  // The operation may run.
  virtual bool runs() const = 0;
  virtual bool has_ended() const = 0;
  // Goes on, before the operation or after it, if what it waits for has happened; true if it has. A failure is the
  // device's, or memory's.
  virtual Result<bool> advance() = 0;
  // The operation has ended well.
  virtual Status begin_return() = 0;
  // The call has failed: ends it, unless the device is still at work. True once it has ended. `fills`: the output that
  // it has begun becomes 0xFF, for a stream that goes on without hearing of the failure.
  virtual bool abandon(bool fills) = 0;
  // The same, and waits for that.
  virtual void drain(bool fills) = 0;
  // It has ended with its output in the caller's buffer.
  virtual bool has_returned() const = 0;

  // Nothing tells the host when the device's work has ended: how long until it looks again.
  virtual Nanoseconds patience() const = 0;
  // The device computes for the operation.
  virtual bool is_computing() const = 0;
  // "the work before it on its stream", to say what a call waits for. Not while the operation runs.
  virtual const char* awaited() const = 0;
  // Whether a gate of the device was opened since the last question: the caller's stream may have waited there, and the
  // time for which it did is not this call's.
  virtual bool saw_gate_open() = 0;

  // The device that computes the operation, by an address that is its own; null: the host does.
  virtual const void* place() const = 0;
  // Who computes, for the log; "" where nothing is copied.
  virtual std::string describe_place() const = 0;
  // The Compute of an operation that the device computes: only if place() is not null.
  virtual std::unique_ptr<Compute> make_compute(const ComputeContext& context) const = 0;

  // The owner needs it no more: waits until the device has ended its work, and keeps the object for another call. Takes
  // no memory.
  virtual void give_back() = 0;

 protected:
  ~DevicePart() = default;
};

struct DevicePartReturn {
  void operator()(DevicePart* part) const { part->give_back(); }
};
using DevicePartPtr = std::unique_ptr<DevicePart, DevicePartReturn>;

}  // namespace qccl::engine
