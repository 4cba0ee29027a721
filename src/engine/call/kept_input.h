// CallOptions::keep_input: a copy of the part of a call's input that its output overwrites, made slice by slice before
// the slice is used, and written back if the call fails.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "engine/call/executable_plan.h"

namespace qccl::engine {

// Memory for such copies, in powers of two, kept for later calls: after warm-up nothing is allocated. Thread-safe. It
// outlives the copies.
class KeptPool {
 public:
  struct GiveBack {
    KeptPool* pool = nullptr;
    std::size_t size_class = 0;
    void operator()(std::byte* memory) const { pool->give_back(memory, size_class); }
  };
  using Memory = std::unique_ptr<std::byte, GiveBack>;

  KeptPool() = default;
  ~KeptPool();
  KeptPool(const KeptPool&) = delete;
  KeptPool& operator=(const KeptPool&) = delete;

  // Throws std::bad_alloc.
  Memory take(std::size_t bytes);

 private:
  void give_back(std::byte* memory, std::size_t size_class);

  std::mutex mutex_;                              // guards what follows
  std::array<std::vector<std::byte*>, 64> free_;  // by the power of two, with room for all that were made
  std::array<std::size_t, 64> made_{};
};

// One call's copy; the default keeps nothing. Owned by the call's arguments.
class KeptInput {
 public:
  KeptInput() = default;
  // For a call of the plan with these buffers. Empty unless the call overwrites some of its input. Throws
  // std::bad_alloc.
  KeptInput(KeptPool& pool, const ExecutablePlan& plan, const std::byte* input, std::byte* output);

  bool any() const { return begin_ != nullptr; }
  // Copies what of a part of the input the output overwrites.
  void keep(ConstBytes part) const { move(part, Way::keep); }
  // Writes back what keep() has copied of the part.
  void give_back(ConstBytes part) const { move(part, Way::give_back); }

 private:
  enum class Way { keep, give_back };
  void move(ConstBytes part, Way way) const;

  std::byte* begin_ = nullptr;  // in the caller's output
  std::size_t bytes_ = 0;
  KeptPool::Memory copy_;
};

}  // namespace qccl::engine
