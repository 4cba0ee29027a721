// Runs jobs on the host, by the bodies of the device's kernels, for tests and for the fake driver.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device/slice_body.h"

namespace qccl::kernels::device {

template <Entry kEntry>
void run_groups(const SliceJob* jobs, std::uint32_t count, std::uint32_t groups) {
  using Program = ProgramOf<kEntry>;
  const auto memory = std::make_unique<GroupMemory<Program>>();
  for (std::uint32_t group = 0; group < groups; ++group) {
    HostGroup<typename Program::Lane> lanes(group % 2 == 1);
    run_jobs<Program>(jobs, count, {group, groups}, *memory, lanes);
  }
}

// All jobs have this entry(). As many groups as given share them; every second one runs its lanes backwards.
inline void run_on_host(Entry entry, const SliceJob* jobs, std::uint32_t count, std::uint32_t groups) {
  switch (entry) {
    case Entry::own_type: return run_groups<Entry::own_type>(jobs, count, groups);
    case Entry::raw: return run_groups<Entry::raw>(jobs, count, groups);
    case Entry::cast: return run_groups<Entry::cast>(jobs, count, groups);
    case Entry::minmax: return run_groups<Entry::minmax>(jobs, count, groups);
    case Entry::block_int: return run_groups<Entry::block_int>(jobs, count, groups);
    case Entry::sign: return run_groups<Entry::sign>(jobs, count, groups);
  }
}

}  // namespace qccl::kernels::device
