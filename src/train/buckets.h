// Buckets of gradients: which parameters share a bucket, and which calls send it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "qccl/train.h"

namespace qccl::train {

// Parameters from the last to the first, as backward passes finish them; a bucket ends with the parameter that reaches
// its limit.
std::vector<std::vector<std::size_t>> bucket_members(const std::vector<Parameter>& parameters,
                                                     const DataParallelOptions& options);

// The gradients of some parameters, one after another.
class Bucket {
 public:
  Bucket(const std::vector<Parameter>& parameters, std::vector<std::size_t> members);

  const std::vector<std::size_t>& members() const { return members_; }
  std::span<float> part(std::size_t index) { return std::span(data_).subspan(begins_[index], sizes_[index]); }

  // Posts the sums over the ranks: a call for each parameter that the policy compresses, one for the neighbours in
  // between.
  void post(Communicator& group, const std::vector<Parameter>& parameters, const Policy& policy, std::uint64_t step,
            std::vector<ErrorFeedback>* feedback);
  bool is_posted() const { return is_posted_; }
  void wait();

  // Number of members not yet ready in this step.
  std::size_t missing = 0;

 private:
  std::vector<std::size_t> members_, begins_, sizes_;
  std::vector<float> data_;
  std::vector<Work> works_;
  bool is_posted_ = false;
};

}  // namespace qccl::train
