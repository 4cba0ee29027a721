// Makes the states that Work handles point to, in memory that is used again: a program that
// repeats its calls does not allocate for them.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "engine/work_state.h"

namespace qccl::engine {

// Blocks of one size: that of the first. Thread-safe.
class BlockList {
 public:
  BlockList() = default;
  ~BlockList() {
    for (void* block : free_) ::operator delete(block);
  }
  BlockList(const BlockList&) = delete;
  BlockList& operator=(const BlockList&) = delete;

  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      free_.reserve(++blocks_);
      return ::operator new(bytes);
    }
    void* block = free_.back();
    free_.pop_back();
    return block;
  }
  // There is room: as many as were ever taken.
  void give_back(void* block) {
    const std::lock_guard lock(mutex_);
    free_.push_back(block);
  }

 private:
  std::mutex mutex_;
  std::vector<void*> free_;
  std::size_t blocks_ = 0;
};

// For std::allocate_shared. The last of its objects frees the list.
template <class T>
struct BlockAllocator {
  using value_type = T;
  explicit BlockAllocator(std::shared_ptr<BlockList> list) : blocks(std::move(list)) {}
  template <class U>
  BlockAllocator(const BlockAllocator<U>& other) : blocks(other.blocks) {}

  T* allocate(std::size_t count) { return static_cast<T*>(blocks->take(count * sizeof(T))); }
  void deallocate(T* block, std::size_t) { blocks->give_back(block); }
  template <class U>
  bool operator==(const BlockAllocator<U>& other) const {
    return blocks == other.blocks;
  }

  std::shared_ptr<BlockList> blocks;
};

class WorkPool {
 public:
  std::shared_ptr<internal::WorkState> make() {
    return std::allocate_shared<internal::WorkState>(BlockAllocator<internal::WorkState>(blocks_));
  }

 private:
  std::shared_ptr<BlockList> blocks_ = std::make_shared<BlockList>();
};

}  // namespace qccl::engine
