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
// reduce_scatter of sums (sum, avg, premul_sum) of float32, float16 and bfloat16, where every rank of the call passes
// one or none does, and for sends. A call that ends up uncompressed leaves the state unchanged.
//
// A call is a transaction: after one that failed, residual and counter are what they were before it, and it can be
// repeated, in this group or in the one that shrink() returns. Memory: two float32 an element, one of them for the
// other side of the last call (settle()).
//
// Calls on a device's memory that run there (docs/gpu.md) move the state to the device. The functions here, and calls
// on host memory, copy it back and throw what the device answers if that fails. The state may outlive the job.
//
// One call at a time may use a state. Until that call's Work is done, a second call and every function here except
// size() throw misuse. Only one thread at a time may use it.
class ErrorFeedback {
 public:
  // None: calls run without error feedback.
  ErrorFeedback() = default;
  // Zeros for `count` elements of input: all_reduce's and reduce's count; for reduce_scatter, the count over all ranks
  // together. `counter`: a rank that joins later passes the other ranks' counter(), so that stochastic rounding stays
  // coordinated.
  explicit ErrorFeedback(std::size_t count, std::uint64_t counter = 0);

  // Whether it was made without a size.
  bool is_none() const { return state_ == nullptr; }
  // 0 for none, on which every other function throws misuse.
  std::size_t size() const;
  // Number of calls with it that ended well; the codecs' random numbers depend on it, so all ranks must have the same.
  std::uint64_t counter() const;
  // The residual of each element, readable and writable. Valid as long as the state; ask again after a call on device
  // memory, which may keep it there.
  std::span<float> residual() const;
  // After a failure: makes this the state after `counter` calls, where that is one more or one less than counter(). A
  // rank may see its last call end well that failed on others; before a step is repeated, or taken over from a rank
  // that has its result, all ranks settle on the same number (docs/failures.md).
  //   counter() - 1  undoes the last call, which ended well
  //   counter() + 1  redoes the last call, which failed here: only of an all_reduce that ended well on another rank
  //   counter()      changes nothing
  // The sides stay: a rank may go back and forth until its next call begins. Throws misuse for another number, and
  // where the failed call had not come to all elements.
  void settle(std::uint64_t counter);

  // Clears the residual and counter(). All ranks must make the same call.
  void reset();
  // Clears the residual of `count` elements from `begin` on; the rest stays. Throws invalid_argument outside size().
  void reset(std::size_t begin, std::size_t count);

  // A checkpoint: calls after restore() give the same bits as without it. Layout:
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

  // For the library's own functions.
  const std::shared_ptr<internal::FeedbackState>& state() const { return state_; }

 private:
  internal::FeedbackState& idle_state() const;
  internal::FeedbackState& host_state() const;

  std::shared_ptr<internal::FeedbackState> state_;
};

}  // namespace qccl
