// Calls of a Communicator as data, and their settings.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "qccl/compression.h"
#include "qccl/device.h"
#include "qccl/error_feedback.h"
#include "qccl/types.h"

namespace qccl {

// A duration in calls and options.
using Milliseconds = std::chrono::milliseconds;

// Settings of one collective call.
struct CallOptions {
  ReduceOp op = ReduceOp::sum;               // reductions only
  double premul_factor = 1;                  // premul_sum: factor of this rank's input; ranks may differ
  int root = 0;                              // rank in the group; broadcast, reduce, gather, scatter
  std::optional<Compression> compression{};  // overrides the group's; none() turns it off
  ErrorFeedback error_feedback{};            // reductions only: for this rank's input, see error_feedback.h
  Algorithm algorithm = Algorithm::automatic;
  std::optional<Milliseconds> timeout{};  // of this operation; unset: the group's
  std::string log_name{};                 // the call's name in the log; "": its operation
  // For the _async calls: the caller waits for the operation right away, so no other thread is woken to drive it. If
  // the caller does not wait, the operation begins up to 50 ms late.
  bool awaited = false;
  // The buffers are in the stream's device's memory (or pinned): see device.h. Unset: they are in host memory.
  std::optional<DeviceStream> stream{};
  // If the call fails, its input is what it was before, so that it can be repeated. Calls that do not overwrite their
  // input leave it alone anyway. Others copy the part that they overwrite while they are in flight (memory: that part
  // once, kept for later calls), use memory from allocate() like any other, and on a device's memory go by way of the
  // host. The same on all ranks.
  bool keep_input = false;
  // Elements of all calls that are made at once with this one, such as those of a model's gradients: its algorithm is
  // chosen for as many, because their bytes share the lines. Less than its own count: for that. The same on all ranks.
  std::size_t together = 0;
};

// Settings of one message.
struct MessageOptions {
  int tag = 0;                            // not negative; a recv takes only messages of its own tag
  std::optional<Milliseconds> timeout{};  // of this operation; unset: the group's
  std::string log_name{};                 // see CallOptions::log_name
  std::optional<DeviceStream> stream{};   // see CallOptions::stream; the peer's buffer may be in other memory
  // Of float32, float16 and bfloat16; the same on sender and receiver. Unset: none, whatever the group's. The receiver
  // gets what one encoding leaves, within the codec's bound. auto is refused: a message names its codec.
  std::optional<Compression> compression{};
  // Of the sender alone, with as many elements as the message: one for each channel, whose messages are sent one after
  // the other. The message is v = x + e, and e becomes v - decode(encode(v)); a send that fails leaves e unchanged.
  ErrorFeedback error_feedback{};
};

// One count for each rank; 0 is allowed.
using Counts = std::span<const std::size_t>;

// A collective call, for Communicator::run(), post(), estimate() and choice(). Holds neither buffers nor counts: the
// counts must stay valid until those return, the buffers until the operation has ended. named_calls.h says what
// buffers and counts mean to each collective; its functions make such calls.
struct CollectiveCall {
  Collective collective = Collective::barrier;
  const void* input = nullptr;  // a broadcast does not use it: its buffer is the output
  void* output = nullptr;       // the result; see named_calls.h
  std::size_t count = 0;        // elements; not used with `counts`
  DataType type = DataType::uint8;
  CallOptions options{};
  std::optional<Counts> counts{};  // the v form: of each rank; all_to_all: what this rank sends to each
  Counts receives{};               // the v form of all_to_all: what this rank receives from each
};

// A send or a recv.
struct MessageCall {
  const void* input = nullptr;  // of a send
  void* output = nullptr;       // of a recv
  bool incoming = false;        // it is a recv
  std::size_t count = 0;        // elements
  DataType type = DataType::uint8;
  int peer = 0;  // rank in the group; of a recv also kAnySource
  MessageOptions options{};
};

// One operation of a coalesced call: input, output and count mean what they mean in the collective itself.
struct CallBuffers {
  const void* input = nullptr;  // see CollectiveCall
  void* output = nullptr;       // see CollectiveCall
  std::size_t count = 0;        // elements
};

}  // namespace qccl
