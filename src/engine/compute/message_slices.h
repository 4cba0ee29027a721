// A message's data in slices, each the payload of a frame: to payload bytes on its sender and back on its receiver.
//
// Slices are those of slice_elements(), so both ranks know them from count, type and codec. Error feedback: the sender
// encodes v = x + e, and e becomes v - decode(encode(v)).
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/call/call_arguments.h"
#include "engine/compute/math_context.h"
#include "engine/compute/slice_encoder.h"

namespace qccl::engine {

// What all messages of a rank share.
struct MessageContext {
  ScratchPool* pool;
  std::uint64_t seed;       // of random rounding
  std::size_t slice_bytes;  // of a slice's elements, before they are encoded
};

class MessageSlices {
 public:
  explicit MessageSlices(const MessageContext& context)
      : context_(context),
        math_({.type = DataType::uint8, .op = ReduceOp::sum, .world = 1, .codec = nullptr, .pool = context.pool}),
        input_(math_),
        encoder_(math_) {}
  MessageSlices(const MessageSlices&) = delete;
  MessageSlices& operator=(const MessageSlices&) = delete;

  // The arguments stay where they are until the message has ended. `counter` distinguishes the random numbers of the
  // messages of a job.
  void begin(const CallArguments& arguments, std::uint64_t counter);

  // At least 1: an empty message is one empty slice.
  std::uint64_t count() const { return count_; }
  // Upper limit of a slice's payload.
  std::size_t payload_limit(std::uint64_t slice) const;
  // Elements of the slices before this one, in bytes.
  std::size_t offset(std::uint64_t slice) const;
  // On the sender: writes the payload of a slice, each in turn and once; returns the bytes written.
  std::size_t write(std::uint64_t slice, Bytes payload);
  // On the receiver: to the output. CorruptData if the payload is not that slice.
  Status read(std::uint64_t slice, ConstBytes payload);
  // On the receiver of a message to this rank itself: read() of what the sender writes.
  Status copy_from(MessageSlices& sender);

  // The message has ended: its error feedback becomes the caller's again, after a failure as it was before.
  void end(bool well);

 private:
  std::size_t length(std::uint64_t slice) const;
  void begin_slice(std::uint64_t slice);

  const MessageContext context_;
  MathContext math_;
  InputSource input_;
  SliceEncoder encoder_;
  // Set by begin().
  const CallArguments* arguments_ = nullptr;
  std::uint64_t elements_ = 0;
  std::uint64_t slice_elements_ = 1;
  std::uint64_t count_ = 1;
  std::uint64_t kept_elements_ = 0;  // the first ones, whose residual is saved
};

}  // namespace qccl::engine
