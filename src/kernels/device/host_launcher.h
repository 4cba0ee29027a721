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

// All jobs have this entry(). As many groups as given share them; every second one runs its lanes backwards.
inline void run_on_host(Entry entry, const JobList& list, std::uint32_t groups) {
  switch (entry) {
    case Entry::own_type: return run_groups<Entry::own_type>(list, groups);
    case Entry::raw: return run_groups<Entry::raw>(list, groups);
    case Entry::cast: return run_groups<Entry::cast>(list, groups);
    case Entry::minmax: return run_groups<Entry::minmax>(list, groups);
    case Entry::block_int: return run_groups<Entry::block_int>(list, groups);
    case Entry::sign: return run_groups<Entry::sign>(list, groups);
  }
}
inline void run_on_host(Entry entry, const SliceJob* jobs, std::uint32_t count, std::uint32_t groups) {
  for (std::uint32_t begin = 0; begin < count; begin += kMostListed) {
    run_on_host(entry, list_of(jobs + begin, lesser(count - begin, kMostListed)), groups);
  }
}

}  // namespace qccl::kernels::device
