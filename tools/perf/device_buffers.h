#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tools/perf/perf_memory.h"

namespace qccl::tools {

// Buffers on a GPU, which `local_rank` selects. Throws qccl::Error where problem_of_devices() has a reason.
std::unique_ptr<BufferMemory> make_device_buffers(int local_rank);
// Why there are none; nothing if there are.
std::optional<std::string> problem_of_devices();

}  // namespace qccl::tools
