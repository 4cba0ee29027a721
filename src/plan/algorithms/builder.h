#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/log.h"
#include "plan/plan.h"

namespace qccl::plan {

// Makes one rank's schedule.
class Builder {
 public:
  Builder(const Request& request, int rank) : request_(request), rank_(rank), chunks_(chunks(request)) {}

  const Request& request() const { return request_; }
  int rank() const { return rank_; }
  int world() const { return request_.world; }
  int root() const { return request_.root; }
  bool is_root() const { return rank_ == request_.root; }
  const std::vector<Range>& ranges() const { return chunks_; }
  std::uint64_t begin_of(int chunk) const { return range_of(chunk).begin; }

  // Every other rank, starting after this one, so that ranks do not all send to rank 0 first.
  std::vector<int> others() const;

  // A lane for a whole chunk, unless the chunk is empty.
  void add(int chunk, std::uint64_t input_begin, std::uint64_t output_begin, std::vector<Step> steps) {
    add_whole({.input_begin = input_begin, .output_begin = output_begin, .steps = std::move(steps)}, chunk);
  }
  // A chunk that begins at the same element in input and output.
  void add_in_place(int chunk, std::vector<Step> steps) {
    add(chunk, begin_of(chunk), begin_of(chunk), std::move(steps));
  }
  // All chunks, with the same steps.
  void add_in_every_lane(const std::vector<Step>& steps) {
    for (int chunk = 0; chunk < static_cast<int>(chunks_.size()); ++chunk) add_in_place(chunk, steps);
  }
  // A lane that writes nothing to the caller's output: it only sends, or adds for others.
  void add_scratch(int chunk, std::uint64_t input_begin, std::vector<Step> steps) {
    add_whole({.input_begin = input_begin, .steps = std::move(steps), .scratch = true}, chunk);
  }
  // An all_gather's own piece: copied to the output, and sent to `peers` in phase 0.
  void add_own_piece(std::vector<int> peers);
  void add(Lane lane) { schedule_.lanes.push_back(std::move(lane)); }
  int last_lane() const { return static_cast<int>(schedule_.lanes.size()) - 1; }
  // Slice i of each lane from index `first` on waits for slice i of the lane before it.
  void order_by_slice(int first);

  // Steps that accumulate all ranks' slices in rank order, and `finish`; the other ranks' arrive in phase 0.
  // `quantize_own`: this rank's part as its peers would decode it.
  std::vector<Step> reduce_steps(bool quantize_own = false) const;

  RankSchedule take() { return std::move(schedule_); }

 private:
  // There is such a chunk: see AlgorithmEntry::chunk_count.
  const Range& range_of(int chunk) const {
    QCCL_CHECK(static_cast<std::size_t>(chunk) < chunks_.size());
    return chunks_[static_cast<std::size_t>(chunk)];
  }
  void add_whole(Lane lane, int chunk);

  const Request& request_;
  const int rank_;
  const std::vector<Range> chunks_;
  RankSchedule schedule_;
};

// An all_to_all, where rank r's piece p becomes rank p's piece r: pieces are sent at once or one after another.
void build_all_to_all(Builder& builder, bool one_at_a_time);

}  // namespace qccl::plan
