// Frame buffers by size class, reused last in, first out so that they stay in cache. Nothing is allocated once the pool
// holds as many buffers of each class as are ever in use together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "transport/transport.h"

namespace qccl::tcp {

class Connection;

// Lies right before the frame's bytes, which begin on a cache line (and so does the payload).
struct alignas(64) FrameBuffer {
  FrameBuffer* next = nullptr;  // in a FrameList or the pool's free list
  Connection* connection = nullptr;
  std::byte* placed = nullptr;  // of a received frame: its payload, if that is not in this buffer
  std::uint32_t bytes = 0;      // of the frame
  std::uint32_t filled = 0;     // received so far
  std::uint8_t size_class = 0;
  TrafficClass traffic = TrafficClass::data;

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
  FrameBuffer* pop_front() { return std::exchange(first_, first_->next); }

 private:
  FrameBuffer* first_ = nullptr;
  FrameBuffer* last_ = nullptr;
};

// Owns all its buffers. One thread.
class FrameBufferPool {
 public:
  FrameBufferPool() = default;
  ~FrameBufferPool() {
    for (FrameBuffer* buffer : all_) ::operator delete(buffer, kAlignment);
  }
  FrameBufferPool(const FrameBufferPool&) = delete;
  FrameBufferPool& operator=(const FrameBufferPool&) = delete;

  // A buffer for a frame of up to `bytes` (at most kMaxFrameBytes).
  FrameBuffer* take(std::size_t bytes) {
    QCCL_CHECK(bytes <= kMaxFrameBytes);
    std::uint8_t size_class = 0;
    while (kCapacities[size_class] < bytes) ++size_class;
    FrameBuffer* const free = free_[size_class];
    if (free == nullptr) return allocate(size_class);
    free_[size_class] = free->next;
    free->placed = nullptr;
    return free;
  }
  void put_back(FrameBuffer* buffer) { buffer->next = std::exchange(free_[buffer->size_class], buffer); }

  std::size_t allocations() const { return all_.size(); }

 private:
  static constexpr std::array<std::size_t, 5> kCapacities{512, 4096, 16384, 65536 + kFrameHeaderBytes, kMaxFrameBytes};
  static constexpr std::align_val_t kAlignment{alignof(FrameBuffer)};

  FrameBuffer* allocate(std::uint8_t size_class) {
    if (all_.capacity() == all_.size()) all_.reserve(2 * all_.size() + 1);
    void* const memory = ::operator new(sizeof(FrameBuffer) + kCapacities[size_class], kAlignment);
    all_.push_back(new (memory) FrameBuffer{.size_class = size_class});
    return all_.back();
  }

  std::array<FrameBuffer*, kCapacities.size()> free_{};
  std::vector<FrameBuffer*> all_;
};
static_assert(std::is_trivially_destructible_v<FrameBuffer>);

inline constexpr std::size_t kStagingBytes = 64 * 1024;

// Shared by the connections of an endpoint.
struct SharedBuffers {
  FrameBufferPool pool;
  std::vector<std::byte> staging = std::vector<std::byte>(kStagingBytes);  // used within one call only
  std::size_t waiting_writers = 0;                                         // writers whose queue is not empty
};

}  // namespace qccl::tcp
