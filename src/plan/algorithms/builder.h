// Shared by the algorithms. One builder makes one rank's schedule.
#pragma once

#include <utility>
#include <vector>

#include "plan/plan.h"

namespace qccl::plan {

class Builder {
 public:
  Builder(const Request& request, int rank) : request_(request), rank_(rank), chunks_(chunks(request)) {}

  const Request& request() const { return request_; }
  int rank() const { return rank_; }
  int world() const { return request_.world; }
  int root() const { return request_.root; }
  bool is_root() const { return rank_ == request_.root; }
  const std::vector<Range>& ranges() const { return chunks_; }
  std::uint64_t begin_of(int chunk) const { return chunks_[static_cast<std::size_t>(chunk)].begin; }

  // Every other rank, starting after this one, so that ranks do not all send to rank 0 first.
  std::vector<int> others() const;

  // A lane for a whole chunk, unless the chunk is empty.
  void add(int chunk, std::uint64_t input_begin, std::uint64_t output_begin, std::vector<Step> steps);
  // A chunk that begins at the same element in input and output.
  void add_in_place(int chunk, std::vector<Step> steps) {
    add(chunk, begin_of(chunk), begin_of(chunk), std::move(steps));
  }
  // A chunk of which this rank's caller gets nothing.
  void add_scratch(int chunk, std::uint64_t input_begin, std::vector<Step> steps);
  // An all_gather's own piece: copied to the output, and sent to `peers` in phase 0.
  void add_own_piece(std::vector<int> peers);
  void add(Lane lane) { schedule_.lanes.push_back(std::move(lane)); }
  int last_lane() const { return static_cast<int>(schedule_.lanes.size()) - 1; }

  RankSchedule take() { return std::move(schedule_); }

 private:
  bool is_left_out(int chunk) const;

  const Request& request_;
  const int rank_;
  const std::vector<Range> chunks_;
  RankSchedule schedule_;
};

// Steps that accumulate all ranks' slices in rank order; the other ranks' arrive in `phase`.
std::vector<Step> reduce_steps(int rank, int world, std::uint16_t phase, bool quantize_own);

// An all_to_all whose pieces are sent at once or one after another.
void build_all_to_all(Builder& builder, bool one_at_a_time);

}  // namespace qccl::plan
