// Frame buffers by size class, reused last in, first out so that they stay in cache. Nothing is
// allocated once the pool holds as many buffers of each class as are ever in use together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "transport/transport.h"

namespace qccl::tcp {

// Lies right before the frame's bytes, which begin on a cache line (and so does the payload).
struct alignas(64) FrameBuffer {
  FrameBuffer* next = nullptr;  // in a FrameList or the pool's free list
  std::uint32_t bytes = 0;      // of the frame
  std::uint32_t filled = 0;     // received so far
  WorldRank peer;
  std::uint8_t size_class = 0;
  TrafficClass traffic = TrafficClass::data;
  std::byte* placed = nullptr;  // of a received frame: where its payload lies, if not in this buffer

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};
static_assert(sizeof(FrameBuffer) == 64);

// First in, first out, linked through FrameBuffer::next. Does not own.
class FrameList {
 public:
  bool empty() const { return first_ == nullptr; }
  FrameBuffer* front() const { return first_; }
  void push_back(FrameBuffer* frame) {
    frame->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = frame;
    last_ = frame;
  }
  FrameBuffer* pop_front() {
    FrameBuffer* frame = first_;
    first_ = frame->next;
    return frame;
  }

 private:
  FrameBuffer* first_ = nullptr;
  FrameBuffer* last_ = nullptr;
};

// Owns all its buffers. One thread.
class FrameBufferPool {
 public:
  FrameBufferPool() = default;
  ~FrameBufferPool();
  FrameBufferPool(const FrameBufferPool&) = delete;
  FrameBufferPool& operator=(const FrameBufferPool&) = delete;

  // A buffer for a frame of up to `bytes` (at most kMaxFrameBytes).
  FrameBuffer* take(std::size_t bytes);
  void give_back(FrameBuffer* buffer);

  std::size_t allocations() const { return all_.size(); }

 private:
  static constexpr std::array<std::size_t, 5> kCapacities{512, 4096, 16384, 65536 + kFrameHeaderBytes, kMaxFrameBytes};

  std::array<FrameBuffer*, kCapacities.size()> free_{};
  std::vector<FrameBuffer*> all_;
};

}  // namespace qccl::tcp
