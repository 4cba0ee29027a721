// The state of a DataParallel handle.
#pragma once

#include <string>
#include <vector>

#include "train/buckets.h"

namespace qccl::train {

class DataParallel::State {
 public:
  State(Communicator group, std::vector<Parameter> parameters, const DataParallelOptions& options);
  ~State();

  void ready(std::size_t parameter);
  void finish();
  // A step of a rank without a batch: sends zeros and writes nothing.
  void shadow();
  // Every rank takes the values of rank `rank`.
  void take_values_of(int rank);

  Communicator& group() { return group_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const ErrorFeedback& feedback(std::size_t parameter) const { return feedback_[checked(parameter)]; }
  void set_feedback(std::size_t parameter, ErrorFeedback feedback) {
    feedback_[checked(parameter)] = std::move(feedback);
  }

  std::uint64_t step = 0;
  int accumulations = 0;
  double divisor;  // sums are divided by it

 private:
  std::size_t checked(std::size_t parameter) const;
  void check_alike() const;
  void begin_step();
  void post_complete_buckets();
  std::vector<std::int32_t> used_anywhere();
  void write_averages(const std::vector<std::int32_t>& used);
  [[noreturn]] void fail(ErrorKind kind, const std::string& what) const;

  mutable Communicator group_;
  const std::vector<Parameter> parameters_;
  const DataParallelOptions options_;
  std::vector<ErrorFeedback> feedback_;  // by parameter
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_, place_in_bucket_;  // by parameter
  std::vector<std::int32_t> ready_;                       // by parameter, in this step: 1 or 0
  std::size_t next_bucket_ = 0;                           // the first one not posted
};

}  // namespace qccl::train
