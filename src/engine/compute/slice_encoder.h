// One lane's arithmetic on a slice: to payload bytes and back, and its sum over ranks. Knows element types and codecs.
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
  float* converted();
  Bytes own_room();
  const float* as_floats(const std::byte* input, std::size_t elements);
  void round_for_exact(float* sum, std::size_t elements);
  RandomStream random_of(std::uint64_t key) const;
  std::size_t encode_floats(std::uint64_t key, std::span<const float> values, Bytes payload) const;

  const MathContext& math_;
  std::uint64_t first_element_;  // set by begin(), as is the next
  bool is_current_;              // encoded() is of this slice of input
  std::size_t encoded_bytes_ = 0;
  ScratchPool::Buffer converted_;
  ScratchPool::Buffer encoded_;
};

// The sum of one slice over ranks: adds the parts in plan order and finishes the sum.
//
// float32, float64 and integers accumulate in their own type; float16, bfloat16 and everything compressed accumulate in
// float32 and round once. The first part of an uncompressed sum is only pointed at and the last one lands in the
// output, so that two ranks cost one pass.
class SliceAccumulator {
 public:
  static constexpr int kSumStays = -1;
  explicit SliceAccumulator(const MathContext& math) : math_(math) {}

  // Begins a slice, whose first element is `first_element` of the whole tensor. After `expected` parts the sum is in
  // the output; kSumStays: it never is.
  void begin(int expected, std::uint64_t first_element = 0);
  // With error feedback: this rank encodes what includes its input in this lane.
  void set_encodes(bool encodes) { encodes_ = encodes; }

  // The part that was added must stay in place until the next one.
  bool keeps_part() const { return added_ == 1 && pending_ != nullptr; }
  void add_input(const std::byte* input, std::byte* output, std::size_t elements);
  // `raw`: the payload is uncompressed whatever the codec. CorruptData if it does not decode to that many elements.
  Status add_payload(ConstBytes payload, std::byte* output, std::size_t elements, bool raw = false);

  // The sum so far where it lies, if it can be sent as it is; else empty.
  ConstBytes raw_sum(std::size_t elements) const;
  // Writes the sum so far as payload, each call alike; returns the bytes written. With `keep` the sum becomes what was
  // written, which only sums without a codec do.
  std::size_t encode_sum(SliceEncoder& encoder, std::size_t elements, Bytes payload, bool keep);
  // Averages and writes the output.
  void finish(std::byte* output, std::size_t elements);
  // Averages; the output becomes decode(encode(sum)). See SliceEncoder::encode_result().
  Status finish_encoded(SliceEncoder& encoder, std::byte* output, std::size_t elements);
  void release() { accumulator_.reset(); }

 private:
  float* accumulator();
  void add_raw(const std::byte* part, std::byte* output, std::size_t elements);
  void add_widened(const std::byte* part, std::size_t elements);
  void add_with_residual(const float* values, std::size_t elements);
  float* averaged(std::size_t elements);

  const MathContext& math_;
  // Set by begin().
  std::uint64_t first_element_;
  int expected_;
  int added_;
  const std::byte* pending_;  // raw: the first part, or the sum so far
  bool encodes_ = false;
  ScratchPool::Buffer accumulator_;
};

}  // namespace qccl::engine
