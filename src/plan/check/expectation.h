// The contents each rank must hold after a collective, stated without any algorithm: the checker compares plans with
// this.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/plan.h"

namespace qccl::plan {

// Some elements of one rank's input.
struct Source {
  int rank = 0;
  std::uint64_t begin = 0;
  friend auto operator<=>(const Source&, const Source&) = default;
};

// Elements of a rank's output, and the inputs whose sum (or copy) they are.
struct Expected {
  Range output;
  std::vector<Source> sources;  // in rank order
};

// `requests` by rank; they differ only in an all_to_all's counts.
std::vector<Expected> expected_output(const std::vector<Request>& requests, int rank);

// In place, output position = input position + this; empty if in place is not allowed or the rank has only one of the
// buffers.
std::optional<std::int64_t> in_place_shift(const Request& request, int rank);

// True if several ranks hold the same elements of the result, which must then be the same bytes.
bool is_shared_result(Collective collective);

}  // namespace qccl::plan
