// Memory for small lists that calls carry along: what was given back is used again, so that a program that repeats its
// calls does not allocate for them, whichever threads take and give.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <vector>

namespace qccl {

// The process's. Never destroyed: what it gave may outlive the end of main().
inline std::pmr::memory_resource& pooled_memory() {
  static auto* const pool = new std::pmr::synchronized_pool_resource;
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
