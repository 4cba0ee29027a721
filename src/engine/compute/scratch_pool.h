// Scratch buffers of one size, reused last in first out so that they stay in cache. After warm-up
// nothing is allocated.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace qccl::engine {

// Holds a slice widened to fp32: a raw 16-bit slice of 256 KiB has 128 Ki elements.
inline constexpr std::size_t kScratchBytes = 2 * kMaxPayloadBytes;

class ScratchPool {
 public:
  struct GiveBack {
    ScratchPool* pool = nullptr;
    void operator()(std::byte* bytes) const { pool->free_.push_back(bytes); }
  };
  // 64-byte aligned, kScratchBytes long; returns to the pool when destroyed.
  using Buffer = std::unique_ptr<std::byte, GiveBack>;

  Buffer take() {
    if (free_.empty()) {
      if (free_.capacity() <= memory_.size()) free_.reserve(2 * memory_.size() + 1);  // to give back takes no memory
      memory_.push_back(std::make_unique<Block>());
      free_.push_back(memory_.back()->bytes);
    }
    std::byte* bytes = free_.back();
    free_.pop_back();
    return Buffer(bytes, GiveBack{this});
  }

 private:
  struct alignas(64) Block {
    std::byte bytes[kScratchBytes];
  };
  std::vector<std::unique_ptr<Block>> memory_;
  std::vector<std::byte*> free_;
};

inline float* floats(const ScratchPool::Buffer& buffer) { return reinterpret_cast<float*>(buffer.get()); }

}  // namespace qccl::engine
