// The arithmetic of one lane: accumulates the slices of all ranks in plan order, finishes the sum
// and turns slices into payload bytes and back. Knows element types and codecs, no transport.
//
// float32, float64 and integers accumulate in their own type; float16, bfloat16 and everything
// that is compressed accumulate in float32 and round once. The first contribution is only pointed
// at, the last one lands in the output, so that two ranks cost one pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/call/call_arguments.h"
#include "engine/compute/buffer_pool.h"

namespace qccl::engine {

// Why a codec is at work, and for which element of the tensor: what its random numbers depend on.
struct DrawKeys {
  DrawKeys() = default;
  DrawKeys(std::uint64_t seed, std::uint64_t counter)
      : input(draw_key(seed, counter, DrawPhase::input)),
        owner(draw_key(seed, counter, DrawPhase::owner)),
        hop(draw_key(seed, counter, DrawPhase::hop)) {}
  std::uint64_t input = 0;
  std::uint64_t owner = 0;
  std::uint64_t hop = 0;
};

// What all lanes of an operation share.
struct MathContext {
  DataType type;
  ReduceOp op;
  int world;
  const Codec* codec;  // null: raw
  BufferPool* pool;
  double premul_factor = 1;
  int rank = 0;  // of this process in the group
  DrawKeys keys{};
  float* residuals = nullptr;  // of error feedback, by element of the input; null: without. Only with a codec.

  std::size_t element_size() const { return element_bytes(type); }
  std::size_t payload_limit(std::size_t elements) const {
    return codec != nullptr ? codec->max_encoded_bytes(elements) : elements * element_size();
  }
};

class LaneMath {
 public:
  // This rank's slice as collectives take it: premul_sum's is multiplied first, into this lane's
  // own memory, once between two begin(); with error feedback it is floats, with the residual added.
  const std::byte* own_input(const MathContext& context, const std::byte* input, std::size_t elements);

  // Writes `elements` of the caller's buffer as payload; returns the bytes written.
  std::size_t encode(const MathContext& context, const std::byte* input, std::size_t elements, Bytes payload);
  // As elements, whatever the codec.
  std::size_t copy_raw(const MathContext& context, const std::byte* input, std::size_t elements, Bytes payload);
  // Of own_input(), to be sent as elements whatever the codec.
  ConstBytes raw_input(const MathContext& context, const std::byte* input, std::size_t elements);
  // encode() into this lane's own memory, once between two begin(), to be sent to several peers.
  ConstBytes encode_once(const MathContext& context, const std::byte* input, std::size_t elements);
  ConstBytes encoded() const { return {encoded_.bytes(), encoded_bytes_}; }

  // Payload to the caller's output, where it may lie already; with `raw` it is elements as they are, whatever the
  // codec. CorruptData if it is not `elements` long.
  Status decode(const MathContext& context, ConstBytes payload, std::byte* output, std::size_t elements,
                bool raw = false);

  // For error feedback: whether this rank encodes what comes of its input in this lane.
  void set_encodes(bool encodes) { encodes_ = encodes; }

  // Accumulation of one slice: begin, then each part in order, then encode_sum or finish. After
  // `expected` parts the sum is in the output; kSumStays: it never is. While keeps_part(), the
  // bytes of the first part must stay as they are. The slice begins with element `first_element` of
  // the whole tensor.
  static constexpr int kSumStays = -1;
  void begin(int expected, std::uint64_t first_element = 0);
  bool keeps_part() const { return added_ == 1 && pending_ != nullptr; }
  void add_input(const MathContext& context, const std::byte* input, std::byte* output, std::size_t elements);
  // As above, through decode(encode(input)), reusing encode_once's bytes if they are this slice's.
  Status add_quantized_input(const MathContext& context, const std::byte* input, std::size_t elements);
  // With `raw` the payload is elements as they are, whatever the codec.
  Status add_payload(const MathContext& context, ConstBytes payload, std::byte* output, std::size_t elements,
                     bool raw = false);
  // The sum so far where it lies, if that is what encode_sum() would write; else empty.
  ConstBytes raw_sum(const MathContext& context, std::size_t elements) const;
  // Writes the sum so far, which is not raw, as payload, each call alike; returns the bytes written. With `keep` the
  // sum becomes what was written; only without a codec.
  std::size_t encode_sum(const MathContext& context, std::size_t elements, Bytes payload, bool keep = false);
  // Averages and writes the output. With `requantize` the output becomes decode(encode(sum)) and
  // encoded() is what peers must get; without an output nothing is decoded.
  Status finish(const MathContext& context, std::byte* output, std::size_t elements, bool requantize);

  // Room for a slice that takes the place of the caller's output.
  std::byte* scratch(const MathContext& context);

  void release_buffers();

 private:
  bool widens(const MathContext& context) const;
  static bool holds_floats(DataType type, const std::byte* slice);
  float* converted(const MathContext& context);
  const float* as_floats(const MathContext& context, const std::byte* input, std::size_t elements);
  void add_raw(const MathContext& context, const std::byte* part, std::byte* output, std::size_t elements);
  void add_widened(const MathContext& context, const std::byte* part, std::size_t elements);
  Status finish_raw(const MathContext& context, std::byte* output, std::size_t elements);
  float* accumulator(const MathContext& context);
  Status add_encoded(const MathContext& context, ConstBytes payload, std::size_t elements);
  void write_output(const MathContext& context, const float* values, std::byte* output, std::size_t elements);
  void round_for_exact(const MathContext& context, float* sum, std::size_t elements);
  Draw draw_of(const MathContext& context, std::uint64_t key) const;
  std::size_t encode_floats(const MathContext& context, std::uint64_t key, std::span<const float> values,
                            Bytes payload) const;

  // ---- error feedback (lane_feedback.cc)
  const std::byte* owed_input(const MathContext& context, const std::byte* input, std::size_t elements);
  struct OwedEncoding {
    std::uint64_t key;
    float world = 1;           // what values are to be multiplied by to be in units of the sum
    float* decoded = nullptr;  // where to decode; null: nobody wants it
  };
  ConstBytes encode_with_residual(const MathContext& context, const float* values, std::size_t elements,
                                  const OwedEncoding& how);
  Status finish_owed(const MathContext& context, const float* sum, std::byte* output, std::size_t elements);
  ConstBytes raw_owed(const MathContext& context, const float* values, std::size_t elements);
  void add_owed(const MathContext& context, const float* values, std::size_t elements);
  void keep_residual(const MathContext& context, const float* values, const float* sent, std::size_t elements,
                     float factor = 1) const;

  std::uint64_t first_element_ = 0;
  int expected_ = 0;
  int added_ = 0;
  const std::byte* pending_ = nullptr;  // raw: the first part, or the sum so far
  bool encoded_is_current_ = false;
  std::size_t encoded_bytes_ = 0;
  bool scaled_is_current_ = false;
  bool encodes_ = false;
  BufferPool::Buffer scaled_;
  BufferPool::Buffer accumulator_;
  BufferPool::Buffer converted_;
  BufferPool::Buffer encoded_;
  BufferPool::Buffer scratch_;
};

}  // namespace qccl::engine
