// Makes the states that Work handles point to, in memory that is used again: a program that
// repeats its calls does not allocate for them.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "engine/call/work_state.h"

namespace qccl::engine {

// Blocks of one size: that of the first. Thread-safe. It lives as long as its owner or any block that was taken.
// One block waits outside the lock: a program of blocking calls takes and gives back the same one.
class BlockList {
 public:
  BlockList() = default;
  BlockList(const BlockList&) = delete;
  BlockList& operator=(const BlockList&) = delete;

  void* take(std::size_t bytes) {
    // Acquire: pairs with give_back(), after the last use of the block.
    void* block = spare_.exchange(nullptr, std::memory_order_acquire);
    if (block == nullptr) block = take_locked(bytes);
    users_.fetch_add(1, std::memory_order_relaxed);
    return block;
  }

  void give_back(void* block) {
    void* none = nullptr;
    if (!spare_.compare_exchange_strong(none, block, std::memory_order_release, std::memory_order_relaxed)) {
      // There is room: as many as were ever taken.
      const std::lock_guard lock(mutex_);
      free_.push_back(block);
    }
    leave();
  }

  // By the owner, once: the last to leave frees the list.
  void leave() {
    // Release and acquire: everybody's last use comes before the end.
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  void* take_locked(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      free_.reserve(blocks_ + 1);
      void* const made = ::operator new(bytes);
      ++blocks_;
      return made;
    }
    void* block = free_.back();
    free_.pop_back();
    return block;
  }
  ~BlockList() {
    ::operator delete(spare_.load(std::memory_order_relaxed));
    for (void* block : free_) ::operator delete(block);
  }

  std::atomic<std::size_t> users_{1};
  std::atomic<void*> spare_{nullptr};
  std::mutex mutex_;
  std::vector<void*> free_;
  std::size_t blocks_ = 0;
};

// For std::allocate_shared, which copies its allocator several times: hence a bare pointer.
template <class T>
struct BlockAllocator {
  using value_type = T;
  explicit BlockAllocator(BlockList& list) : blocks(&list) {}
  template <class U>
  BlockAllocator(const BlockAllocator<U>& other) : blocks(other.blocks) {}

  T* allocate(std::size_t count) { return static_cast<T*>(blocks->take(count * sizeof(T))); }
  void deallocate(T* block, std::size_t) { blocks->give_back(block); }
  template <class U>
  bool operator==(const BlockAllocator<U>& other) const {
    return blocks == other.blocks;
  }

  BlockList* blocks;
};

class WorkPool {
 public:
  WorkPool() : blocks_(new BlockList) {}
  ~WorkPool() { blocks_->leave(); }
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  std::shared_ptr<internal::WorkState> make() {
    return std::allocate_shared<internal::WorkState>(BlockAllocator<internal::WorkState>(*blocks_));
  }

 private:
  BlockList* blocks_;
};

}  // namespace qccl::engine
