// Runs a plan for all roles symbolically and says what is wrong with it.
//
// Checked: every output element receives each rank's contribution exactly once and in the order
// 0..N-1 (or the one copy it should hold); ranks agree; every frame sent is received and the other
// way round, each stream carrying the slices of one chunk; no deadlock with one slot per stream;
// no rank encodes an element twice; in place, nothing is overwritten before it was sent.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"

namespace qccl::plan {

// InvalidArgument with the first thing found wrong: rank, chunk, slice and step.
Status check(const Request& request, const std::vector<Role>& roles);

// The roles that make_role() gives for every rank, checked.
Status check(const Request& request);

}  // namespace qccl::plan
