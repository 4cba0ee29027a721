// What the arithmetic of an operation's lanes shares: its scratch memory, types, codec and random keys, and this rank's
// input as collectives take it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/rank.h"
#include "base/result.h"
#include "codec/codec.h"
#include "qccl/types.h"
#include "transport/transport.h"

namespace qccl::engine {

// Holds a slice widened to fp32: a raw 16-bit slice of 256 KiB has 128 Ki elements.
inline constexpr std::size_t kScratchBytes = 2 * kMaxPayloadBytes;

// Scratch buffers of one size, reused last in first out so that they stay in cache. After warm-up nothing is allocated.
class ScratchPool {
 public:
  struct GiveBack {
    ScratchPool* pool = nullptr;
    void operator()(std::byte* bytes) const { pool->free_.push_back(bytes); }
  };
  // 64-byte aligned, kScratchBytes long; returns to the pool when destroyed.
  using Buffer = std::unique_ptr<std::byte, GiveBack>;

  Buffer take() {
    if (free_.empty()) {
      if (free_.capacity() <= memory_.size()) free_.reserve(2 * memory_.size() + 1);  // to give back takes no memory
      memory_.push_back(std::make_unique<Block>());
      free_.push_back(memory_.back()->bytes);
    }
    std::byte* bytes = free_.back();
    free_.pop_back();
    return Buffer(bytes, GiveBack{this});
  }

 private:
  struct alignas(64) Block {
    std::byte bytes[kScratchBytes];
  };
  std::vector<std::unique_ptr<Block>> memory_;
  std::vector<std::byte*> free_;
};

inline float* floats(const ScratchPool::Buffer& buffer) { return reinterpret_cast<float*>(buffer.get()); }

// The keys of an operation's random numbers, by the reason why a codec draws them.
struct PhaseKeys {
  PhaseKeys() = default;
  PhaseKeys(std::uint64_t seed, std::uint64_t counter)
      : input(random_key(seed, counter, RandomPhase::input)),
        owner(random_key(seed, counter, RandomPhase::owner)),
        hop(random_key(seed, counter, RandomPhase::hop)) {}
  std::uint64_t input = 0;
  std::uint64_t owner = 0;
  std::uint64_t hop = 0;
};

struct MathContext {
  DataType type;
  ReduceOp op;
  int world;
  const Codec* codec;  // null: raw
  ScratchPool* pool;
  double premul_factor = 1;
  int averaged = 0;  // ResolvedCall::averaged
  GroupRank rank{0};
  PhaseKeys keys{};
  float* residuals = nullptr;  // error feedback's, by element of the input; null: without. Only with a codec.

  std::size_t element_size() const { return element_bytes(type); }
  bool is_16_bit() const { return type == DataType::float16 || type == DataType::bfloat16; }
  int divisor() const { return averaged > 0 ? averaged : world; }  // of avg
  // Sums are accumulated in float32 and rounded once.
  bool widens() const { return codec != nullptr || is_16_bit(); }

  // `values` in the call's type.
  void write_values(const float* values, std::byte* output, std::size_t elements) const;
  // CorruptData if the payload is not that many elements as they are.
  Status check_raw_size(ConstBytes payload, std::size_t elements) const;
  // Error feedback: keeps what encoding took away from `values`, of which `sent` is left, times `factor`.
  void keep_residual(std::uint64_t first_element, const float* values, const float* sent, std::size_t elements,
                     float factor = 1) const;
};

// The two are the same or do not overlap.
void copy_bytes(void* target, const void* source, std::size_t bytes);

// This rank's input as collectives take it: multiplied for premul_sum, with the residual added under error feedback.
class InputSource {
 public:
  explicit InputSource(const MathContext& math) : math_(math) {}
  // The slice begins with element `first_element` of the whole tensor.
  void begin(std::uint64_t first_element) {
    first_element_ = first_element;
    is_current_ = false;
  }
  // The slice: `input` itself, or, changed, in memory of this object, computed once between two begin(). With error
  // feedback it is floats.
  const std::byte* take(const std::byte* input, std::size_t elements);
  void release() { changed_.reset(); }

 private:
  const MathContext& math_;
  // Set by begin().
  std::uint64_t first_element_;
  bool is_current_;
  ScratchPool::Buffer changed_;
};

}  // namespace qccl::engine
