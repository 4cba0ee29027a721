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
#include <vector>

#include "kernels/onebit/onebit.h"
#include "qccl/communicator.h"

namespace qccl::internal {

// Memory for messages, kept between calls: 1/16 of the padded tensor for each call in flight. Thread-safe.
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

}  // namespace qccl::internal
