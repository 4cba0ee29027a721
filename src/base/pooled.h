// Memory for small lists that calls carry along. Freed blocks are reused, so that a program that repeats its calls does
// not allocate for them, whichever threads allocate and free.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <vector>

namespace qccl {

// Thread-safe. libstdc++'s std::pmr::synchronized_pool_resource cannot be used: after a thread's first allocation from
// it has failed, it no longer works.
class PooledMemory {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment) {
    const std::lock_guard lock(mutex_);
    return pool_.allocate(bytes, alignment);
  }
  void deallocate(void* block, std::size_t bytes, std::size_t alignment) {
    const std::lock_guard lock(mutex_);
    pool_.deallocate(block, bytes, alignment);
  }

 private:
  std::mutex mutex_;
  std::pmr::unsynchronized_pool_resource pool_;
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

  T* allocate(std::size_t count) { return static_cast<T*>(pooled_memory().allocate(count * sizeof(T), alignof(T))); }
  void deallocate(T* block, std::size_t count) { pooled_memory().deallocate(block, count * sizeof(T), alignof(T)); }
  template <class U>
  bool operator==(const PooledAllocator<U>&) const {
    return true;
  }
};

template <class T>
using PooledVector = std::vector<T, PooledAllocator<T>>;

}  // namespace qccl
