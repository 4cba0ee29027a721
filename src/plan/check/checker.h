// Runs a plan for all schedules symbolically and says what is wrong with it.
//
// A slice's value is which ranks' inputs it holds, from which place, in the order and association
// in which they were added, and where it was encoded. Checked: every output element is made of
// exactly what it should hold, each once, nothing else is written, and nothing twice; sums are in
// rank order where the algorithm promises that; ranks that hold the same part of a result hold the
// same value to the last addition and encoding; every frame sent is received and the other way
// round; no deadlock with one slot per stream; no rank encodes an element of a reduction twice; in
// place, nothing is overwritten before it was read for the last time.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"

namespace qccl::plan {

// InvalidArgument with the first thing found wrong: rank, chunk, slice and step. `requests` by
// rank: they differ only in an all_to_all's counts.
Status check(const std::vector<Request>& requests, const std::vector<RankSchedule>& schedules);
Status check(const Request& request, const std::vector<RankSchedule>& schedules);

// The schedules that schedule_of() gives for every rank, checked.
Status check(const std::vector<Request>& requests);
Status check(const Request& request);

}  // namespace qccl::plan
