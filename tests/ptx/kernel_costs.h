// What the compiled kernels cost: instructions of PTX for each element of a slice, over all lanes. The slices are long,
// aligned and finite. Machine code differs by a factor, but a kernel whose PTX grows gets slower.
#pragma once

#include <string>
#include <vector>

#include "ptx/compiled_kernels.h"

namespace qccl::kernels::device {

enum class Work { copy, encode, reduce, decode };

struct CostCase {
  std::string name;  // "minmax4 encode"
  Work work = Work::copy;
  PayloadFormat format{};
};

// Every kind of work on the formats that people use.
std::vector<CostCase> cost_cases();

struct Cost {
  double instructions = 0;     // of lanes, for each element, as what follows
  double issued = 0;           // of warps, times kLanes: as much as `instructions` where no lane idles
  double accesses = 0;         // of global memory
  double shared_accesses = 0;  // of shared memory
  double wide_share = 0;       // of the accesses: those of 16 bytes
};

Cost cost_of(const CostCase& what);

}  // namespace qccl::kernels::device
