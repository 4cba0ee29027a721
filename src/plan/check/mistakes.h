// Mistakes that tests plant in plans, to see that the checker finds them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace qccl::plan {

enum class Mistake : std::uint8_t {
  missing_contribution,  // a rank leaves its own input out of a sum
  double_contribution,   // a rank adds its own input twice
  different_order,       // a rank adds in a different order from the others
  unreceived_send,       // a rank does not receive a frame sent to it
  overwritten_input,     // a rank sends its input after its output has overwritten it
  crossed_waits,         // all ranks wait for each other before they send
};

std::span<const Mistake> all_mistakes();
std::string_view to_string(Mistake mistake);

// Plants it in the suitable place of this index; false if the plan has fewer.
bool plant(Mistake mistake, const Request& request, std::vector<RankSchedule>& schedules, int index = 0);

}  // namespace qccl::plan
