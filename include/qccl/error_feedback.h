// Error feedback: what compression takes away from a sum is added to the next call's.
//
//   qccl::ErrorFeedback feedback(gradient.size());
//   for (...) comm.all_reduce(gradient, {.compression = qccl::minmax({.bits = 2}), .error_feedback = feedback});
//
// Each rank keeps one float32 residual e for each element of its input, in units of the SUM. Its input counts as x + e
// (premul_sum: factor x + e), and where it encodes a value v as Q, its own part or a sum on its way, e becomes v - Q
// (avg: the sum's, world times that of the average). No rank encodes an element more than once in a call, whatever the
// algorithm, so that over any number of calls, algorithms and worlds
//
//   sum of outputs + all ranks' residuals at the end = sum of inputs + all ranks' residuals at the start
//
// up to rounding in float32 (avg: outputs times world; float16 and bfloat16 outputs: before they are rounded to those).
// Where a value or what it decodes to is not finite, the result shows it and the residual stays as it was.
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
// none does. A call that turns out not to be compressed leaves the state alone.
//
// One call at a time may use a state. While one does, until its Work is done, everything here but size() throws
// misuse, and so does a second call. A call that fails in the middle taints the state: further calls throw misuse until
// reset(), because some of it was sent and some not. Not to be used by several threads at once.
class ErrorFeedback {
 public:
  // None: calls go without.
  ErrorFeedback() = default;
  // Zeros for `count` elements of input: all_reduce's and reduce's count, reduce_scatter's over all ranks together.
  // `counter`: a rank that joins others later takes their counter(), so that stochastic rounding stays coordinated.
  explicit ErrorFeedback(std::size_t count, std::uint64_t counter = 0);

  bool is_none() const { return state_ == nullptr; }
  std::size_t size() const;
  // Calls that have used it, the same on all ranks; random numbers of their codecs depend on it.
  std::uint64_t counter() const;
  // What is owed, by element; to look at and to change. Valid as long as the state.
  std::span<float> residual() const;
  bool is_tainted() const;

  // Nothing is owed any more; counter() is 0 and nothing tainted. To be called on all ranks alike.
  void reset();
  // Nothing is owed for `count` elements from `begin` on; the rest stays. Throws invalid_argument outside size().
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
