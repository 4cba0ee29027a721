// The names of the public enumerations' values, in the order of the values. Algorithms have theirs in plan/algorithms.
#include <cstddef>

#include "qccl/error.h"
#include "qccl/failures.h"
#include "qccl/types.h"

namespace qccl {
namespace {

template <class Enum, std::size_t count>
const char* name_in(const char* const (&names)[count], Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < count ? names[index] : "unknown";
}

}  // namespace

const char* to_string(ErrorKind kind) {
  static constexpr const char* kNames[] = {"invalid_argument",   "misuse",     "peer_lost",
                                           "deadline_exceeded",  "aborted",    "corrupt_data",
                                           "resource_exhausted", "unsupported"};
  return name_in(kNames, kind);
}

const char* to_string(LossGrade grade) {
  static constexpr const char* kNames[] = {"gone", "left", "silent"};
  return name_in(kNames, grade);
}

std::string_view to_string(DataType type) {
  static constexpr const char* kNames[] = {"float32", "float64", "float16", "bfloat16", "int32",  "int64", "uint8",
                                           "int8",    "int16",   "uint16",  "uint32",   "uint64", "bool"};
  return name_in(kNames, type);
}

std::string_view to_string(ReduceOp op) {
  static constexpr const char* kNames[] = {"sum", "avg", "min", "max", "prod", "band", "bor", "bxor", "premul_sum"};
  return name_in(kNames, op);
}

std::string_view to_string(Collective collective) {
  static constexpr const char* kNames[] = {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier",
                                           "reduce",     "gather",    "scatter",    "all_to_all"};
  return name_in(kNames, collective);
}

}  // namespace qccl
