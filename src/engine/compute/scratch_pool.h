// Scratch buffers of one size, reused last in first out so that they stay in cache. After warm-up
// nothing is allocated.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace qccl::engine {

// Holds a slice widened to fp32: a raw 16-bit slice of 256 KiB has 128 Ki elements.
inline constexpr std::size_t kScratchBytes = 2 * kMaxPayloadBytes;

class ScratchPool {
 public:
  // 64-byte aligned, kScratchBytes long; returns to the pool when destroyed.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(ScratchPool* pool, std::byte* bytes) : pool_(pool), bytes_(bytes) {}
    ~Buffer() { reset(); }
    Buffer(Buffer&& other) noexcept : pool_(other.pool_), bytes_(std::exchange(other.bytes_, nullptr)) {}
    Buffer& operator=(Buffer&& other) noexcept {
      reset();
      pool_ = other.pool_;
      bytes_ = std::exchange(other.bytes_, nullptr);
      return *this;
    }
    void reset() {
      if (bytes_ != nullptr) pool_->free_.push_back(std::exchange(bytes_, nullptr));
    }
    bool valid() const { return bytes_ != nullptr; }
    std::byte* bytes() const { return bytes_; }
    float* floats() const { return reinterpret_cast<float*>(bytes_); }

   private:
    ScratchPool* pool_ = nullptr;
    std::byte* bytes_ = nullptr;
  };

  Buffer take() {
    if (free_.empty()) {
      if (free_.capacity() <= memory_.size()) free_.reserve(2 * memory_.size() + 1);  // to give back takes no memory
      memory_.push_back(std::make_unique<Block>());
      free_.push_back(memory_.back()->bytes);
    }
    std::byte* bytes = free_.back();
    free_.pop_back();
    return Buffer(this, bytes);
  }

 private:
  struct alignas(64) Block {
    std::byte bytes[kScratchBytes];
  };
  std::vector<std::unique_ptr<Block>> memory_;
  std::vector<std::byte*> free_;
};

}  // namespace qccl::engine
