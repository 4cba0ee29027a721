#include "ptx/compiled_kernels.h"

#include <fstream>
#include <iterator>

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
  const char* const name = kEntryNames[static_cast<std::size_t>(entry)];
  void* const values[] = {&jobs, &count};
  ptx::HostMemory memory;
  ptx::Module& kernels = compiled_kernels();
  return kernels.launch(name, kernels.parameters_of(name, values), grid, memory);
}

void launch_jobs(Entry entry, const SliceJob* jobs, std::uint32_t count, std::uint32_t groups) {
  launch_compiled(entry, jobs, count, {.blocks = (groups + kGroups - 1) / kGroups, .threads = kThreads});
}

}  // namespace qccl::kernels::device
