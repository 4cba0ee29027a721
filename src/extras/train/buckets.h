// Buckets of gradients: which parameters share a bucket, and which calls send it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "qccl/train.h"

namespace qccl::train {

// Parameters from the last to the first, as backward passes finish them; a bucket ends with the parameter that reaches
// its limit.
inline std::vector<std::vector<std::size_t>> bucket_members(const std::vector<Parameter>& parameters,
                                                            const DataParallelOptions& options) {
  std::vector<std::vector<std::size_t>> buckets;
  std::size_t bytes = 0;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const std::size_t limit = buckets.size() <= 1 ? options.first_bucket_bytes : options.bucket_bytes;
    if (buckets.empty() || bytes >= limit) {
      buckets.emplace_back();
      bytes = 0;
    }
    buckets.back().push_back(i);
    bytes += parameters[i].value.size_bytes();
  }
  return buckets;
}

// The gradients of some parameters, one after another.
class Bucket {
 public:
  Bucket(const std::vector<Parameter>& parameters, std::vector<std::size_t> members) : members_(std::move(members)) {
    std::size_t count = 0;
    for (const std::size_t member : members_) {
      begins_.push_back(count);
      sizes_.push_back(parameters[member].value.size());
      count += sizes_.back();
    }
    data_.resize(count);
  }

  const std::vector<std::size_t>& members() const { return members_; }
  std::span<float> part(std::size_t index) { return std::span(data_).subspan(begins_[index], sizes_[index]); }

  // Posts the sums over the ranks: a call for each parameter that the policy compresses, one for the neighbours in
  // between.
  void post(Communicator& group, const std::vector<Parameter>& parameters, const Policy& policy, std::uint64_t step,
            std::vector<ErrorFeedback>* feedback) {
    std::size_t plain = 0;  // where the uncompressed neighbours begin
    const auto send = [&](std::size_t begin, std::size_t end, CallOptions options) {
      options.together = data_.size();
      if (end > begin) works_.push_back(group.all_reduce_async(std::span(data_).subspan(begin, end - begin), options));
    };
    for (std::size_t index = 0; index < members_.size(); ++index) {
      const Parameter& parameter = parameters[members_[index]];
      const Compression compression = policy.choose(
          {.name = parameter.name, .count = parameter.value.size(), .dimensions = parameter.dimensions}, step);
      if (compression.is_none()) continue;
      send(plain, begins_[index], {.compression = none()});
      plain = begins_[index] + sizes_[index];
      CallOptions options{.compression = compression};
      if (feedback != nullptr) {
        ErrorFeedback& own = (*feedback)[members_[index]];
        if (own.is_none()) own = ErrorFeedback(parameter.value.size());
        options.error_feedback = own;
      }
      send(begins_[index], plain, options);
    }
    send(plain, data_.size(), {.compression = none()});
    is_posted_ = true;
  }

  bool is_posted() const { return is_posted_; }

  void wait() {
    std::vector<Work> works;
    works.swap(works_);
    is_posted_ = false;
    for (const Work& work : works) work.wait();
  }

  // Number of members not yet ready in this step.
  std::size_t missing = 0;

 private:
  std::vector<std::size_t> members_, begins_, sizes_;
  std::vector<float> data_;
  std::vector<Work> works_;
  bool is_posted_ = false;
};

}  // namespace qccl::train
