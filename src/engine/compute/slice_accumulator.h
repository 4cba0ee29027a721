// The sum of one slice over ranks: adds the parts in plan order and finishes the sum.
//
// float32, float64 and integers accumulate in their own type; float16, bfloat16 and everything compressed accumulate in
// float32 and round once. The first part of an uncompressed sum is only pointed at and the last one lands in the
// output, so that two ranks cost one pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/compute/math_context.h"
#include "engine/compute/slice_encoder.h"

namespace qccl::engine {

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
  Status add_encoded(ConstBytes payload, std::size_t elements);
  void add_with_residual(const float* values, std::size_t elements);
  void finish_raw(std::byte* output, std::size_t elements);
  float* averaged(std::size_t elements);

  const MathContext& math_;
  std::uint64_t first_element_ = 0;
  int expected_ = 0;
  int added_ = 0;
  const std::byte* pending_ = nullptr;  // raw: the first part, or the sum so far
  bool encodes_ = false;
  ScratchPool::Buffer accumulator_;
};

}  // namespace qccl::engine
