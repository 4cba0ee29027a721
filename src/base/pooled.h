// Memory for the small lists of calls. Freed blocks are reused, so a program that repeats its calls does not allocate
// for them, whichever threads allocate and free.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <mutex>
#include <new>
#include <vector>

namespace qccl {

// Thread-safe. Blocks come in powers of two and stay with the pool. libstdc++'s pool resources can't be used: one that
// was refused memory crashes at its next allocation (GCC 12).
class PooledMemory {
 public:
  // At most alignof(std::max_align_t) aligned.
  void* allocate(std::size_t bytes) {
    const std::size_t size = size_class(bytes);
    if (size < kSizes) {
      // Acquire: pairs with deallocate(), after the last use of the block.
      if (void* const spare = spares_[size].exchange(nullptr, std::memory_order_acquire)) return spare;
      const std::lock_guard lock(mutex_);
      if (Block* const block = free_[size]; block != nullptr) {
        free_[size] = block->next;
        return block;
      }
    }
    return ::operator new(size < kSizes ? kLeastBytes << size : bytes);
  }
  void deallocate(void* memory, std::size_t bytes) {
    const std::size_t size = size_class(bytes);
    if (size >= kSizes) return ::operator delete(memory);
    void* none = nullptr;
    if (spares_[size].compare_exchange_strong(none, memory, std::memory_order_release, std::memory_order_relaxed))
      return;
    auto* const block = static_cast<Block*>(memory);
    const std::lock_guard lock(mutex_);
    block->next = free_[size];
    free_[size] = block;
  }

 private:
  struct Block {
    Block* next;
  };
  static constexpr std::size_t kLeastBytes = 64;
  static constexpr std::size_t kSizes = 12;  // up to 128 KiB; larger lists are seldom repeated
  static std::size_t size_class(std::size_t bytes) {
    return static_cast<std::size_t>(std::bit_width((std::max<std::size_t>(bytes, 1) - 1) / kLeastBytes));
  }

  // One block of each size waits outside of the lock: blocking calls take and give back the same one.
  std::array<std::atomic<void*>, kSizes> spares_{};
  std::mutex mutex_;
  std::array<Block*, kSizes> free_{};
};

// The process's pool. Never destroyed, because its memory may outlive the end of main().
inline PooledMemory& pooled_memory() {
  static auto* const pool = new PooledMemory;
  return *pool;
}

template <class T>
struct PooledAllocator {
  using value_type = T;
  PooledAllocator() = default;
  template <class U>
  PooledAllocator(const PooledAllocator<U>&) {}

  T* allocate(std::size_t count) { return static_cast<T*>(pooled_memory().allocate(count * sizeof(T))); }
  void deallocate(T* block, std::size_t count) { pooled_memory().deallocate(block, count * sizeof(T)); }
  template <class U>
  bool operator==(const PooledAllocator<U>&) const {
    return true;
  }
};

template <class T>
using PooledVector = std::vector<T, PooledAllocator<T>>;

}  // namespace qccl
