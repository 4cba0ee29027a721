#include "os/fork_list.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>

namespace qccl::os {
namespace {

constexpr int kCapacity = 65536;
constexpr int kBitsPerWord = 64;

// Bit n of the table: descriptor n is listed. All operations are relaxed: a bit says nothing about other memory, and
// the child after fork() has a single thread.
constinit std::array<std::atomic<std::uint64_t>, kCapacity / kBitsPerWord> listed{};
constinit std::atomic<std::uint32_t> generation{0};
constinit std::atomic<bool> handler_installed{false};

void close_listed_in_child() {
  bool inherited_any = false;
  for (int word = 0; word < kCapacity / kBitsPerWord; ++word) {
    auto bits = listed[word].exchange(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) {
      ::close(word * kBitsPerWord + std::countr_zero(bits));
      inherited_any = true;
    }
  }
  if (inherited_any) generation.fetch_add(1, std::memory_order_relaxed);
}

bool fits(int fd) { return fd >= 0 && fd < kCapacity; }
std::uint64_t bit_of(int fd) { return std::uint64_t{1} << (fd % kBitsPerWord); }

}  // namespace

void add_to_fork_list(int fd) {
  if (!fits(fd)) return;
  if (!handler_installed.load(std::memory_order_relaxed) && !handler_installed.exchange(true)) {
    ::pthread_atfork(nullptr, nullptr, close_listed_in_child);
  }
  listed[fd / kBitsPerWord].fetch_or(bit_of(fd), std::memory_order_relaxed);
}

void remove_from_fork_list(int fd) {
  if (fits(fd)) listed[fd / kBitsPerWord].fetch_and(~bit_of(fd), std::memory_order_relaxed);
}

std::uint32_t fork_generation() { return generation.load(std::memory_order_relaxed); }

}  // namespace qccl::os
