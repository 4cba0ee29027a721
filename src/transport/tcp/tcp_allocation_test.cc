// A warm data path does not allocate: this program counts every allocation.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "transport/tcp/tcp_endpoint.h"
#include "transport/tcp/tcp_support_test.h"

namespace {

std::atomic<std::size_t> allocations{0};

void* counted(void* memory) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return memory != nullptr ? memory : throw std::bad_alloc();
}

}  // namespace

// Not inlined: otherwise the compiler warns that free() meets new.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return counted(std::malloc(bytes)); }
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto step = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(step, (bytes + step - 1) / step * step));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace qccl::tcp_test {
namespace {

TEST(Tcp, a_warm_data_path_does_not_allocate) {
  auto pair = unix_pair();
  Side a(1, std::move(pair.first)), b(0, std::move(pair.second));
  const auto round = [&] {
    for (const std::size_t size : {std::size_t{0}, std::size_t{100}, std::size_t{20'000}, kMaxPayloadBytes}) {
      while (!a.send(size, 0)) a->progress();
      for (bool got = false; !got;) {
        a->progress();
        b->progress();
        if (auto frame = b->receive()) b->release(*frame), got = true;
      }
    }
  };
  for (int warm_up = 0; warm_up < 3; ++warm_up) round();
  const std::size_t before = allocations.load();
  for (int i = 0; i < 50; ++i) round();
  EXPECT_EQ(allocations.load(), before);
}

}  // namespace
}  // namespace qccl::tcp_test
