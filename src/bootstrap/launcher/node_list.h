// Slurm's short notation for many hosts and the number of tasks on each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qccl::bootstrap {

// More nodes than any job has.
inline constexpr std::size_t kMaxNodes = 65536;

// "node[01-03,7],gpu1" becomes node01 node02 node03 node7 gpu1, in written order; several brackets in a name multiply,
// the last one fastest. Numbers keep their leading zeros. InvalidArgument names the part of the list that cannot be
// read.
Result<std::vector<std::string>> expand_node_list(std::string_view list);

// "4(x2),3" becomes 4 4 3: tasks per node.
Result<std::vector<int>> expand_task_counts(std::string_view list);

}  // namespace qccl::bootstrap
