// DeepSpeed's compressed all-reduce (include/qccl/onebit.h), composed of an all_to_all and an all_gather of bytes.
//
// | message of both exchanges | content                                          |
// |---------------------------|--------------------------------------------------|
// | 0 ..  3                   | scale, float32                                   |
// | 4 ..  7                   | 0                                                |
// | 8 .. 15                   | the sender's count of elements, uint64           |
// | 16 ..                     | signs of one chunk, C / 8 bytes (kernels/onebit/onebit.h) |
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/onebit/onebit.h"
#include "qccl/communicator.h"

namespace qccl::internal {

class CommunicatorState;

struct OnebitArguments {
  std::span<const float> input;
  std::span<float> output;
  std::span<float> worker_error;
  std::span<float> server_error;
};

// Memory for messages, kept from call to call: 1/16 of the padded tensor for each call at a time. Thread-safe.
class OnebitMemory {
 public:
  struct Messages {
    std::vector<std::byte> outgoing;
    std::vector<std::byte> incoming;
    std::vector<kernels::SignedPart> parts;
  };
  std::unique_ptr<Messages> take();
  void give_back(std::unique_ptr<Messages> messages);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Messages>> free_;
};

// Blocking; throws Error.
void onebit_allreduce(CommunicatorState& group, const OnebitArguments& arguments, const OnebitOptions& options);

}  // namespace qccl::internal
