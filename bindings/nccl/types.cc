#include "types.h"

#include <cstring>

#include "base/half.h"
#include "results.h"

namespace qccl::nccl {
namespace {

template <class T>
T read(const void* scalar) {
  T value{};
  std::memcpy(&value, scalar, sizeof(value));
  return value;
}

ReduceOp built_in(ncclRedOp_t op) {
  switch (op) {
    case ncclProd: return ReduceOp::prod;
    case ncclMax: return ReduceOp::max;
    case ncclMin: return ReduceOp::min;
    case ncclAvg: return ReduceOp::avg;
    default: return ReduceOp::sum;
  }
}

}  // namespace

DataType type_of(ncclDataType_t type, bool is_reduced) {
  switch (type) {
    case ncclInt8: return DataType::int8;
    case ncclUint8: return DataType::uint8;
    case ncclInt32: return DataType::int32;
    case ncclUint32: return DataType::uint32;
    case ncclInt64: return DataType::int64;
    case ncclUint64: return DataType::uint64;
    case ncclFloat16: return DataType::float16;
    case ncclFloat32: return DataType::float32;
    case ncclFloat64: return DataType::float64;
    case ncclBfloat16: return DataType::bfloat16;
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      if (is_reduced)
        refuse_usage("fp8 is moved but not reduced; reduce bfloat16 with QCCL_COMPRESSION for fewer bytes");
      return DataType::uint8;
    default: refuse_argument("there is no data type " + std::to_string(type));
  }
}

Reduction reduction_of(const ncclComm& comm, ncclRedOp_t op, DataType type) {
  if (op >= ncclSum && op <= ncclAvg) {
    const ReduceOp known = built_in(op);
    if (!supports(type, known)) {
      refuse_usage(std::string(to_string(known)) + " of " + std::string(to_string(type)) + " is not served");
    }
    return {.op = known};
  }
  const PremulSum made = comm.find(op);
  if (made.type != type) {
    refuse_argument("an operator made for " + std::string(to_string(made.type)) + " in a call with " +
                    std::string(to_string(type)));
  }
  return {.op = ReduceOp::premul_sum, .factor = made.factor, .scalar = made.scalar};
}

double read_scalar(const void* scalar, DataType type) {
  switch (type) {
    case DataType::float64: return read<double>(scalar);
    case DataType::float16: return to_float(read<float16>(scalar));
    case DataType::bfloat16: return to_float(read<bfloat16>(scalar));
    default: return read<float>(scalar);
  }
}

}  // namespace qccl::nccl

using namespace qccl::nccl;

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  return guarded([&] {
    const CommPtr found = find(comm);
    if (op == nullptr || scalar == nullptr) refuse_argument("ncclRedOpCreatePreMulSum() with a null pointer");
    PremulSum made{.type = type_of(type, true)};
    if (!supports(made.type, qccl::ReduceOp::premul_sum)) {
      refuse_usage("premultiplied sums of " + std::string(to_string(made.type)) + " are not served");
    }
    if (residence == ncclScalarHostImmediate) {
      made.factor = read_scalar(scalar, made.type);
    } else if (residence == ncclScalarDevice) {
      made.scalar = scalar;
    } else {
      refuse_argument("there is no residence " + std::to_string(residence));
    }
    *op = found->add(made);
    return ncclSuccess;
  });
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return guarded([&] {
    find(comm)->remove(op);
    return ncclSuccess;
  });
}
