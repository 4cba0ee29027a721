// Mistakes to plant in plans, so that one can see the checker find them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace qccl::plan {

enum class Mistake : std::uint8_t {
  missing_contribution,  // a rank leaves its own input out of a sum
  double_contribution,   // a rank adds its own input twice
  different_order,       // a rank adds in another order than the others
  unreceived_send,       // a rank does not receive what it is sent
  overwritten_input,     // a rank sends its input after the output has taken its place
  crossed_waits,         // all ranks wait for each other before they send
};

std::span<const Mistake> all_mistakes();
std::string_view to_string(Mistake mistake);

// Puts it at the first place of the plan that has room for it; false if there is none.
bool plant(Mistake mistake, const Request& request, std::vector<RankSchedule>& schedules);

}  // namespace qccl::plan
