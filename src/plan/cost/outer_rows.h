// The rows of plan_outer() (qccl/outer_plan.h) from prices: how often ranks that train alone can synchronise.
#pragma once

#include <functional>

#include "plan/cost/cost.h"
#include "qccl/outer_plan.h"

namespace qccl::plan {

// The price of an all_reduce of so many float32 with the codec of this specification.
using OuterPrice = std::function<CostEstimate(const std::string& compression, std::uint64_t elements)>;

// The same with the algorithm of an OuterLoop's rounds, for a key of this codec.
CostEstimate price_of_round(const Compression& compression, const SelectionKey& key, const Layout& layout,
                            const MachineModel& links);

// Uses the options' parameters, step_seconds and computing.
std::vector<train::OuterPlanRow> outer_rows(const train::OuterPlanOptions& options, const OuterPrice& price_of);

}  // namespace qccl::plan
