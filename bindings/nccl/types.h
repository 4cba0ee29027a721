// NCCL's types and reductions as QCCL's.
#pragma once

#include "communicator.h"

namespace qccl::nccl {

// fp8 moves as bytes and is not reduced: unsupported. invalid_argument for no type.
DataType type_of(ncclDataType_t type, bool is_reduced);

// The operator with the type it is for. Throws invalid_argument for no operator of the communicator or another type's,
// unsupported for a type that has no such reduction.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  double factor = 1;             // premul_sum
  const void* scalar = nullptr;  // premul_sum: in place of the factor; on a device, or in host memory
};
Reduction reduction_of(const ncclComm& comm, ncclRedOp_t op, DataType type);

// The scalar of this type in host memory.
double read_scalar(const void* scalar, DataType type);

}  // namespace qccl::nccl
