// Error feedback: the error that compression makes in one call is added to the input of the next.
//
//   qccl::ErrorFeedback feedback(gradient.size());
//   for (...) comm.all_reduce(gradient, {.compression = qccl::minmax({.bits = 2}), .error_feedback = feedback});
//
// Each rank keeps one float32 residual e for each element of its input, in units of the SUM. Its input counts as x + e
// (premul_sum: factor x + e). Wherever the rank encodes a value v as Q, either its own part or a partial sum, e becomes
// v - Q (avg: in units of the sum, world times that of the average). No rank encodes an element more than once in a
// call, under any algorithm, so over any number of calls, algorithms and worlds
//
//   sum of outputs + all ranks' residuals at the end = sum of inputs + all ranks' residuals at the start
//
// up to rounding in float32 (avg: outputs times world; float16 and bfloat16 outputs: before they are rounded to those).
// If a value or its decoded value is not finite, the result shows it and the residual stays unchanged.
// Seide et al., "1-bit stochastic gradient descent", 2014; Karimireddy et al., "Error feedback fixes SignSGD", 2019.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace qccl {

namespace internal {
class FeedbackState;
}  // namespace internal

// A handle: copies name the same state, which a call keeps alive until it ends. For all_reduce, reduce and
// reduce_scatter of sums (sum, avg, premul_sum) of float32, float16 and bfloat16; every rank of the call passes one or
// none does. A call that ends up uncompressed leaves the state unchanged.
//
// One call at a time may use a state. Until that call's Work is done, a second call and every function here except
// size() throw misuse. A call that fails midway taints the state, because only some of the data was sent: further calls
// throw misuse until reset(). Only one thread at a time may use it.
class ErrorFeedback {
 public:
  // None: calls run without error feedback.
  ErrorFeedback() = default;
  // Zeros for `count` elements of input: all_reduce's and reduce's count; for reduce_scatter, the count over all ranks
  // together. `counter`: a rank that joins later passes the other ranks' counter(), so that stochastic rounding stays
  // coordinated.
  explicit ErrorFeedback(std::size_t count, std::uint64_t counter = 0);

  bool is_none() const { return state_ == nullptr; }
  // 0 for none, on which every other function throws misuse.
  std::size_t size() const;
  // Number of calls that have used it, the same on all ranks; the codecs' random numbers depend on it.
  std::uint64_t counter() const;
  // The residual of each element, readable and writable. Valid as long as the state.
  std::span<float> residual() const;
  // Whether a call that failed midway has used it.
  bool is_tainted() const;

  // Clears the residual, counter() and the taint. All ranks must make the same call.
  void reset();
  // Clears the residual of `count` elements from `begin` on; the rest stays. Throws invalid_argument outside size().
  void reset(std::size_t begin, std::size_t count);

  // A checkpoint: calls after restore() give the same bits as without it. Throws misuse if tainted. Layout:
  //
  // | bytes       | content                                          |
  // |-------------|--------------------------------------------------|
  // | 0 .. 7      | "QCCLERRF"                                       |
  // | 8 .. 15     | version, 1 (uint64, little-endian, as all here)  |
  // | 16 .. 23    | size()                                           |
  // | 24 .. 31    | counter()                                        |
  // | 32 ..       | residual, size() float32                         |
  // | last 8      | XXH3 of everything before                        |
  std::vector<std::byte> save() const;
  // Throws corrupt_data if `saved` is not what save() returned, unsupported if a later version made it.
  static ErrorFeedback restore(std::span<const std::byte> saved);

  const std::shared_ptr<internal::FeedbackState>& state() const { return state_; }

 private:
  internal::FeedbackState& idle_state() const;

  std::shared_ptr<internal::FeedbackState> state_;
};

}  // namespace qccl
