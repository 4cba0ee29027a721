#include "kernels/device/host_launcher.h"

#include "kernels/device/test_launcher.h"

namespace qccl::kernels::device {

void launch_jobs(Entry entry, const SliceJob* jobs, std::uint32_t count, std::uint32_t groups) {
  each_program(entry, {jobs, count}, [&](Entry program) { run_on_host(program, jobs, count, groups); });
}

}  // namespace qccl::kernels::device
