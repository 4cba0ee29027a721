// What the arithmetic of all lanes of an operation shares.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/rank.h"
#include "base/result.h"
#include "codec/codec.h"
#include "engine/compute/scratch_pool.h"
#include "qccl/types.h"

namespace qccl::engine {

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
  GroupRank rank{0};
  PhaseKeys keys{};
  float* residuals = nullptr;  // error feedback's, by element of the input; null: without. Only with a codec.

  std::size_t element_size() const { return element_bytes(type); }
  bool is_16_bit() const { return type == DataType::float16 || type == DataType::bfloat16; }
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

}  // namespace qccl::engine
