// Data-parallel training in C++: every rank has the same model and its own batches. Each gradient becomes its average
// over the ranks; gradients are sent in buckets during the backward pass.
//
//   qccl::train::DataParallel model(world, parameters, {.policy = qccl::Policy::parse("minmax:bits=4")});
//   for (...) {
//     // forward; then backward, from the last parameter to the first:
//     for (std::size_t i = parameters.size(); i-- > 0;) { /* gradient of i */ model.ready(i); }
//     model.finish();
//     // optimizer: the gradients are averages, the same bits on every rank
//   }
//
// Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", 2020.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "qccl/communicator.h"
#include "qccl/error_feedback.h"
#include "qccl/policy.h"

namespace qccl::train {

// A part of the model. The caller owns the memory, which must outlive the DataParallel.
struct Parameter {
  std::string name;           // used by policies
  std::span<float> value;     // rank 0's are copied to all ranks at the start
  std::span<float> gradient;  // as many elements
  int dimensions = 2;         // used by policies
};

// Settings of a DataParallel; the same on all ranks.
struct DataParallelOptions {
  // Of the bucket that the first parameters to be ready share: smaller than others, so that sending begins soon.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::size_t bucket_bytes = std::size_t{25} << 20;  // parameters share a bucket of up to so many bytes
  Policy policy{};             // how each gradient is compressed, by name, size and step; by default not at all
  bool error_feedback = true;  // the error of a parameter's gradient is added to its next gradient
  // true: finish() treats parameters that were not ready on this rank as unused. They count as zeros, and the gradient
  // of a parameter that no rank has used stays unchanged. Costs a small all_reduce a step. false: such a parameter is
  // an error.
  bool unused_parameters = false;
};

// One thread at a time. All ranks construct it and make the same calls. Errors of collectives are thrown unchanged: see
// Communicator.
class DataParallel {
 public:
  // Collective: all ranks receive rank 0's values. Throws invalid_argument on all ranks, naming the first such
  // parameter, if one differs in name or size between ranks, or has not as many gradients as values.
  DataParallel(Communicator group, std::vector<Parameter> parameters, const DataParallelOptions& options = {});
  // Waits for the gradients in flight. Throws nothing.
  ~DataParallel();
  DataParallel(DataParallel&&) noexcept;
  DataParallel& operator=(DataParallel&&) = delete;

  // The parameter's gradient is complete on this rank. It is copied, and sent once the gradients of its bucket and of
  // all earlier buckets are complete. Throws misuse if it was already ready in this step, invalid_argument if there is
  // no such parameter.
  void ready(std::size_t parameter);
  // Ends a step: waits for the sums, each of which ends by the group's timeout, and writes the averages into the
  // gradients. Throws misuse, naming the parameter, if one was not ready and unused_parameters is not set.
  void finish();

  // While an Accumulation lives, gradients stay local to each rank: ready() and finish() do nothing. For steps over
  // several batches, whose gradients the caller adds up.
  class Accumulation {
   public:
    explicit Accumulation(DataParallel& model);
    ~Accumulation();
    Accumulation(const Accumulation&) = delete;
    Accumulation& operator=(const Accumulation&) = delete;

   private:
    DataParallel& model_;
  };

  // Number of buckets.
  std::size_t buckets() const;
  // Number of finished steps, which policies use; set it after loading a checkpoint.
  std::uint64_t step() const;
  void set_step(std::uint64_t step);
  // A parameter's residual, for checkpoints (ErrorFeedback::save()); none if it was never compressed.
  const ErrorFeedback& feedback(std::size_t parameter) const;
  void set_feedback(std::size_t parameter, ErrorFeedback feedback);

 private:
  friend class Join;
  class State;
  std::unique_ptr<State> state_;
};

// Settings of a Join; the same on all ranks.
struct JoinOptions {
  // true: gradients are divided by the number of ranks. false: by the number of ranks that still have batches.
  bool divide_by_initial_world = true;
  // Every rank throws Error(aborted) as soon as one has no batch left.
  bool throw_on_early_end = false;
};

// For ranks with different numbers of batches. A rank without batches takes part in the others' collectives with zeros,
// plus its pending error feedback. In the end all ranks take the values of the rank that trained longest. Until then
// any other collective of this group fails on all ranks with an error that names both.
//
//   qccl::train::Join join(model);
//   while (there is a batch) { join.next(); /* forward, backward, finish(), optimizer */ }
//   join.finish();
//
// The semantics are those of torch.distributed.algorithms.join.
class Join {
 public:
  explicit Join(DataParallel& model, const JoinOptions& options = {});
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // Call before each batch; within an Accumulation, like the other ranks.
  void next();
  // Call when this rank has no more batches. Returns once no rank has any.
  void finish();

 private:
  struct Ranks {
    int active = 0;
    int sending = 0;
  };
  Ranks count(bool active);

  DataParallel& model_;
  const JoinOptions options_;
};

}  // namespace qccl::train
