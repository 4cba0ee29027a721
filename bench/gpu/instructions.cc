// Prints what the compiled kernels cost, counted on the CPU: instructions of PTX and accesses for each element.
#include <cstdio>

#include "ptx/kernel_costs.h"

int main() {
  using namespace qccl::kernels::device;
  const auto& program = compiled_kernels().program();
  std::printf("PTX %s for %s: for each element, over all lanes\n\n", program.version.c_str(), program.target.c_str());
  std::printf("%-28s %12s %8s %9s %7s %9s\n", "kernel", "instructions", "issued", "accesses", "shared", "16 bytes");
  for (const CostCase& what : cost_cases()) {
    const Cost cost = cost_of(what);
    std::printf("%-28s %12.1f %8.1f %9.2f %7.2f %8.0f%%\n", what.name.c_str(), cost.instructions, cost.issued,
                cost.accesses, cost.shared_accesses, 100 * cost.wide_share);
  }
}
