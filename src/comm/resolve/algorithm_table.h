// The algorithms of a group's calls that do not name one: plan::choose() for the group's hosts, remembered by class of
// call.
#pragma once

#include <vector>

#include "comm/resolve/call_class.h"
#include "comm/resolve/cost_environment.h"
#include "plan/cost/choice.h"

namespace qccl::comm {

// One thread at a time. Allocates only for the first call of a class.
class AlgorithmTable {
 public:
  // `hosts` by group rank.
  AlgorithmTable(const CostEnvironment& cost_environment, const std::vector<int>& hosts);

  Algorithm choose(const CallClass& call);
  plan::Choice explain(const CallClass& call) const;

 private:
  plan::SelectionKey selection_key(const CallClass& call) const;

  CostEnvironment cost_environment_;
  const std::vector<int> layout_;
  CallClassMemo<Algorithm> chosen_;
};

}  // namespace qccl::comm
