#include "memory/counted_new.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> allocations{0};
std::atomic<std::size_t> live{0};
std::atomic<std::size_t> bytes_now{0}, bytes_most{0};
std::atomic<std::int64_t> left{0};  // allocations until the first refused one; those from 1 down to `end` + 1 fail
std::atomic<std::int64_t> end{0};

bool is_refused() {
  if (left.load(std::memory_order_relaxed) <= end.load(std::memory_order_relaxed)) return false;
  const std::int64_t now = left.fetch_sub(1);
  return now <= 1 && now > end.load(std::memory_order_relaxed);
}

template <class Allocate>
void* counted(Allocate allocate) {
  void* const memory = is_refused() ? nullptr : allocate();
  if (memory == nullptr) throw std::bad_alloc();
  allocations.fetch_add(1, std::memory_order_relaxed);
  live.fetch_add(1, std::memory_order_relaxed);
  const std::size_t bytes = malloc_usable_size(memory);
  const std::size_t now = bytes_now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::size_t most = bytes_most.load(std::memory_order_relaxed);
  while (most < now && !bytes_most.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  return memory;
}

void forget(void* memory) {
  if (memory == nullptr) return;
  live.fetch_sub(1, std::memory_order_relaxed);
  bytes_now.fetch_sub(malloc_usable_size(memory), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

// noinline, because the compiler otherwise warns that free() is called on memory from new.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return counted([&] { return std::malloc(bytes); });
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto step = static_cast<std::size_t>(alignment);
  return counted([&] { return std::aligned_alloc(step, (bytes + step - 1) / step * step); });
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { forget(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { forget(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { forget(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { forget(memory); }

namespace qccl::testing {

std::size_t allocation_count() { return allocations.load(); }
std::size_t live_allocations() { return live.load(); }
std::size_t live_bytes() { return bytes_now.load(); }
std::size_t peak_bytes() { return bytes_most.load(); }
void reset_peak_bytes() { bytes_most.store(bytes_now.load()); }
void refuse_allocation(std::int64_t nth, std::int64_t count) {
  end.store(1 - count);
  left.store(nth);
}
bool stop_refusing() {
  end.store(0);
  return left.exchange(0) <= 0;
}

}  // namespace qccl::testing
