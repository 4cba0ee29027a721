// Data-parallel training in C++: every rank has the same model and batches of its own, and gradients become their
// average over the ranks, sent in buckets while the backward pass goes on.
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

// A part of the model. The memory is the caller's and outlives the DataParallel.
struct Parameter {
  std::string name;
  std::span<float> value;
  std::span<float> gradient;  // as many elements
  int dimensions = 2;         // which policies go by
};

struct DataParallelOptions {
  // Parameters share a bucket up to so many bytes; the first to be ready fill a smaller one, so that sending begins
  // soon.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::size_t bucket_bytes = std::size_t{25} << 20;
  // What is sent as what, by name, size and step; by default all as it is. With error feedback what a codec takes
  // from a parameter's gradient is added to its next one.
  Policy policy{};
  bool error_feedback = true;
  // Whether finish() takes parameters that were not ready on this rank as unused: they count as zeros, and where no
  // rank has used one its gradient stays as it is. Costs a small all_reduce a step. Otherwise such a parameter is an
  // error.
  bool unused_parameters = false;
};

// One thread at a time. All ranks make it, and call the rest, alike. Errors of collectives are thrown as they are.
class DataParallel {
 public:
  // Collective: all ranks then have rank 0's values. Throws invalid_argument that names the first parameter in which a
  // rank differs, on all ranks.
  DataParallel(Communicator group, std::vector<Parameter> parameters, const DataParallelOptions& options = {});
  // Waits for what is on its way.
  ~DataParallel();
  DataParallel(DataParallel&&) noexcept;
  DataParallel& operator=(DataParallel&&) = delete;

  // The parameter's gradient is complete on this rank: it is copied, and sent once those that share its bucket and all
  // earlier buckets are. Throws misuse if it was ready before in this step, invalid_argument if there is none such.
  void ready(std::size_t parameter);
  // Ends a step: waits for the sums and writes the averages into the gradients. Throws misuse that names a parameter
  // which was not ready.
  void finish();

  // While one lives gradients stay as they are on each rank: ready() and finish() do nothing. For steps over several
  // batches, whose gradients the caller adds up.
  class Accumulation {
   public:
    explicit Accumulation(DataParallel& model);
    ~Accumulation();
    Accumulation(const Accumulation&) = delete;
    Accumulation& operator=(const Accumulation&) = delete;

   private:
    DataParallel& model_;
  };

  std::size_t buckets() const;
  // Steps finished, which policies go by; to be set where a checkpoint is loaded.
  std::uint64_t step() const;
  void set_step(std::uint64_t step);
  // A parameter's, for checkpoints (ErrorFeedback::save()); none if it was never compressed.
  const ErrorFeedback& feedback(std::size_t parameter) const;
  void set_feedback(std::size_t parameter, ErrorFeedback feedback);

 private:
  friend class Join;
  class State;
  std::unique_ptr<State> state_;
};

struct JoinOptions {
  // What gradients are divided by: the number of ranks, or of those that still have batches.
  bool divide_by_initial_world = true;
  // Every rank throws Error(aborted) as soon as one has no batch left.
  bool throw_on_early_end = false;
};

// Ranks with different numbers of batches. A rank that has none left answers for the others' collectives with zeros
// (and with what its error feedback owes); in the end all ranks take the values of the one that trained the longest.
// Any other collective of this group meanwhile is an error on all ranks that names both.
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

  // Before each batch; within an Accumulation, as the other ranks.
  void next();
  // This rank has no more batches. Returns when no rank has.
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
