// Runs a plan for all schedules symbolically and reports what is wrong with it.
//
// A slice's value records which ranks' inputs it holds, from which position, in which order and association they were
// added, and where it was encoded. Checked: every output element is made of exactly the inputs it should hold, each
// once; nothing else is written, and nothing twice; sums are in rank order if the algorithm promises that; ranks that
// hold the same part of a result hold the same value to the last addition and encoding; every frame sent is received,
// and every frame received is sent; no deadlock with one slot per stream; no rank encodes an element of a reduction
// twice; in place, nothing is overwritten before its last read.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"

namespace qccl::plan {

// InvalidArgument with the first violation found: rank, chunk, slice and step. `requests` is by rank: they differ only
// in the counts of an all_to_all.
Status check(const std::vector<Request>& requests, const std::vector<RankSchedule>& schedules);
Status check(const Request& request, const std::vector<RankSchedule>& schedules);

// Checks the schedules that schedule_of() gives for every rank.
Status check(const std::vector<Request>& requests);
Status check(const Request& request);

}  // namespace qccl::plan
