#include "tools/run/process/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <tuple>

namespace qccl::tools {
namespace {

// Returns 0 if the system does not provide the value.
int topology(int cpu, const char* what) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", cpu, what));
  int number = 0;
  return file >> number ? number : 0;
}

}  // namespace

std::vector<int> usable_cores() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  ::sched_getaffinity(0, sizeof(usable), &usable);
  std::vector<std::tuple<int, int, int>> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable)) continue;
    cores.emplace_back(topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu);
  }
  std::sort(cores.begin(), cores.end());
  std::vector<int> sorted;
  for (const auto& [socket, core, cpu] : cores) sorted.push_back(cpu);
  return sorted;
}

std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_world) {
  const int count = static_cast<int>(cores.size());
  if (count == 0) return {};
  if (count < local_world) return {cores[static_cast<std::size_t>(local_rank % count)]};
  return {cores.begin() + local_rank * count / local_world, cores.begin() + (local_rank + 1) * count / local_world};
}

}  // namespace qccl::tools
