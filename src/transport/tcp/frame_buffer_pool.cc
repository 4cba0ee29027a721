#include "transport/tcp/frame_buffer_pool.h"

#include <new>

#include "base/check.h"

namespace qccl::tcp {
namespace {

constexpr std::align_val_t kAlignment{alignof(FrameBuffer)};

}  // namespace

FrameBufferPool::~FrameBufferPool() {
  for (FrameBuffer* buffer : all_) {
    buffer->~FrameBuffer();
    ::operator delete(buffer, kAlignment);
  }
}

FrameBuffer* FrameBufferPool::take(std::size_t bytes) {
  QCCL_CHECK(bytes <= kMaxFrameBytes);
  std::uint8_t size_class = 0;
  while (kCapacities[size_class] < bytes) ++size_class;
  FrameBuffer*& head = free_[size_class];
  if (head != nullptr) {
    FrameBuffer* const buffer = std::exchange(head, head->next);
    buffer->placed = nullptr;
    return buffer;
  }
  if (all_.capacity() == all_.size()) all_.reserve(2 * all_.size() + 1);
  void* memory = ::operator new(sizeof(FrameBuffer) + kCapacities[size_class], kAlignment);
  auto* const buffer = new (memory) FrameBuffer;
  buffer->size_class = size_class;
  all_.push_back(buffer);
  return buffer;
}

void FrameBufferPool::give_back(FrameBuffer* buffer) {
  FrameBuffer*& head = free_[buffer->size_class];
  buffer->next = head;
  head = buffer;
}

}  // namespace qccl::tcp
