// Memory for small lists that calls carry along: what was given back is used again, so that a program that repeats its
// calls does not allocate for them, whichever threads take and give.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <vector>

namespace qccl {

// Thread-safe. libstdc++'s std::pmr::synchronized_pool_resource is not usable any more once a thread's first
// allocation from it was refused.
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

// The process's. Never destroyed: what it gave may outlive the end of main().
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
