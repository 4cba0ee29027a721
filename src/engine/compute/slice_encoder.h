// One lane's payloads: slices and sums to payload bytes and back. Knows element types and codecs.
//
// Error feedback (include/qccl/error_feedback.h): this rank's input is x + e throughout a lane. Each time this rank
// encodes a value that includes it, as a part, a partial sum or the result, e becomes the encoding's error; a lane that
// encodes nothing leaves e = 0. These encodings are made in memory of the lane and decoded from there, because a
// frame's memory is shared with its receiver.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/compute/math_context.h"

namespace qccl::engine {

class SliceEncoder {
 public:
  explicit SliceEncoder(const MathContext& math) : math_(math) {}
  // The slice begins with element `first_element` of the whole tensor.
  void begin(std::uint64_t first_element) {
    first_element_ = first_element;
    is_current_ = false;
  }

  // Writes a slice of input as payload; returns the bytes written.
  std::size_t encode(const std::byte* input, std::size_t elements, Bytes payload);
  // The same into memory of this object, once between two begin(), to be sent to several peers.
  ConstBytes encode_once(const std::byte* input, std::size_t elements);
  // A slice of input that is sent uncompressed whatever the codec.
  ConstBytes raw_input(const std::byte* input, std::size_t elements);
  // Writes a partial sum as payload, which it may round; returns the bytes written.
  std::size_t encode_sum(float* sum, std::size_t elements, Bytes payload);
  // The result becomes decode(encode(sum)), which encoded() then is; null: only encoded() is wanted.
  Status encode_result(float* sum, std::byte* output, std::size_t elements);
  // What encode_once() or encode_result() has made.
  ConstBytes encoded() const { return {encoded_.get(), encoded_bytes_}; }

  // Payload to the caller's output, where it may lie already. `raw`: it is uncompressed whatever the codec.
  // CorruptData if it does not decode to that many elements.
  Status decode(ConstBytes payload, std::byte* output, std::size_t elements, bool raw);
  void release();

 private:
  struct ResidualEncoding {
    std::uint64_t key;
    float factor = 1;          // multiplies values to units of the sum
    float* decoded = nullptr;  // where to decode; null: not wanted
  };
  ConstBytes encode_with_residual(const float* values, std::size_t elements, const ResidualEncoding& how);
  Status encode_result_with_residual(const float* sum, std::byte* output, std::size_t elements);
  ConstBytes raw_input_with_residual(const float* values, std::size_t elements);
  float* converted();
  Bytes own_room();
  const float* as_floats(const std::byte* input, std::size_t elements);
  void round_for_exact(float* sum, std::size_t elements);
  RandomStream random_of(std::uint64_t key) const;
  std::size_t encode_floats(std::uint64_t key, std::span<const float> values, Bytes payload) const;

  const MathContext& math_;
  std::uint64_t first_element_ = 0;
  bool is_current_ = false;  // encoded() is of this slice of input
  std::size_t encoded_bytes_ = 0;
  ScratchPool::Buffer converted_;
  ScratchPool::Buffer encoded_;
};

}  // namespace qccl::engine
