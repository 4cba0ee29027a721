// `qccl plan`: checks, shows and simulates the planner's plans.
#pragma once

#include <string>
#include <vector>

namespace qccl::tools {

// Runs the command with the arguments after "plan"; returns the exit code.
int plan_main(const std::vector<std::string>& arguments);

// Its commands, with the arguments after their names.
int plan_check_main(const std::vector<std::string>& arguments);
int plan_show_main(const std::vector<std::string>& arguments);
int plan_simulate_main(const std::vector<std::string>& arguments);

inline constexpr int kPlanWrong = 1;
inline constexpr int kPlanUsage = 2;

}  // namespace qccl::tools
