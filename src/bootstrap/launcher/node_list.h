// Slurm's way of writing many hosts, and how many tasks each has, in a few characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qccl::bootstrap {

// More than any job has.
inline constexpr std::size_t kMaxNodes = 65536;

// "node[01-03,7],gpu1" becomes node01 node02 node03 node7 gpu1, in the order as written; several brackets
// in a name multiply, the last one fastest. Numbers keep their leading zeros.
// InvalidArgument says what of the list can't be read.
Result<std::vector<std::string>> expand_node_list(std::string_view list);

// "4(x2),3" becomes 4 4 3: tasks by node.
Result<std::vector<int>> expand_task_counts(std::string_view list);

}  // namespace qccl::bootstrap
