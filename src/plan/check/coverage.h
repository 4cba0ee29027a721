// The requests that the checker covers: an algorithm for every world up to a limit, with even and ragged counts, with
// and without compression, for several roots and host layouts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"

namespace qccl::plan {

inline constexpr int kMaxCheckedWorld = 33;

// One call as the ranks make it: by rank, equal except for the counts of an all_to_all.
using Requests = std::vector<Request>;

// Calls `visit` for each call until one fails, and returns that failure.
Status for_each_request(Collective collective, Algorithm algorithm, int max_world,
                        const std::function<Status(const Requests&)>& visit);

// "all_reduce ring, world 5, 4099 elements in buckets of 100, compressed"
std::string describe(const Request& request);

}  // namespace qccl::plan
