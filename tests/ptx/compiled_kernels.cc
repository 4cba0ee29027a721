#include "ptx/compiled_kernels.h"

#include <fstream>
#include <iterator>

#include "kernels/device/job_list.h"
#include "kernels/device/test_launcher.h"

namespace qccl::kernels::device {

ptx::Module& compiled_kernels() {
  static ptx::Module* const kModule = [] {
    std::ifstream file(QCCL_TEST_PTX_FILE);
    return new ptx::Module(std::string(std::istreambuf_iterator<char>(file), {}));
  }();
  return *kModule;
}

ptx::Counts launch_compiled(Entry entry, const SliceJob* jobs, std::uint32_t count, const ptx::Grid& grid) {
  ptx::HostMemory memory;
  ptx::Module& kernels = compiled_kernels();
  ptx::Counts counts;
  each_program(entry, {jobs, count}, [&](Entry program) {
    const char* const name = kEntryNames[static_cast<std::size_t>(program)];
    for (std::uint32_t begin = 0; begin < count; begin += kMostListed) {
      JobList list = list_of(jobs + begin, lesser(count - begin, kMostListed));
      void* const parameters[] = {&list};
      counts += kernels.launch(name, kernels.parameters_of(name, parameters), grid, memory);
    }
  });
  return counts;
}

void launch_jobs(Entry entry, const SliceJob* jobs, std::uint32_t count, std::uint32_t groups) {
  launch_compiled(entry, jobs, count, {.blocks = (groups + kGroups - 1) / kGroups, .threads = kThreads});
}

}  // namespace qccl::kernels::device
