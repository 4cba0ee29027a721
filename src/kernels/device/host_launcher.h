// Runs jobs on the host, by the bodies of the device's kernels, for tests and for the fake driver.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device/group.h"
#include "kernels/device/slice_body.h"

namespace qccl::kernels::device {

template <Entry kEntry>
void run_groups(const JobList& list, std::uint32_t groups) {
  using Program = ProgramOf<kEntry>;
  const auto memory = std::make_unique<GroupMemory<Program>>();
  for (std::uint32_t group = 0; group < groups; ++group) {
    HostGroup<typename Program::Lane> lanes(group % 2 == 1);
    run_jobs<Program>(list, {group, groups}, *memory, lanes);
  }
}

// One launch of a program. As many groups as given share the jobs; every second one runs its lanes backwards.
inline void run_on_host(Entry program, const JobList& list, std::uint32_t groups) {
  switch (program) {
    case Entry::own_type: return run_groups<Entry::own_type>(list, groups);
    case Entry::raw: return run_groups<Entry::raw>(list, groups);
    case Entry::cast: return run_groups<Entry::cast>(list, groups);
    case Entry::minmax: return run_groups<Entry::minmax>(list, groups);
    case Entry::block_int: return run_groups<Entry::block_int>(list, groups);
    case Entry::sign: return run_groups<Entry::sign>(list, groups);
    case Entry::grid: return run_groups<Entry::grid>(list, groups);
    case Entry::grid_forms: return run_groups<Entry::grid_forms>(list, groups);
  }
}
inline void run_on_host(Entry program, const SliceJob* jobs, std::uint32_t count, std::uint32_t groups) {
  for (std::uint32_t begin = 0; begin < count; begin += kMostListed) {
    run_on_host(program, list_of(jobs + begin, lesser(count - begin, kMostListed)), groups);
  }
}

}  // namespace qccl::kernels::device
