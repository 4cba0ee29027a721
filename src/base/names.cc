// The names of the public enumerations' values.
#include "qccl/error.h"
#include "qccl/types.h"

namespace qccl {

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument: return "invalid_argument";
    case ErrorKind::misuse: return "misuse";
    case ErrorKind::peer_lost: return "peer_lost";
    case ErrorKind::deadline_exceeded: return "deadline_exceeded";
    case ErrorKind::aborted: return "aborted";
    case ErrorKind::corrupt_data: return "corrupt_data";
    case ErrorKind::resource_exhausted: return "resource_exhausted";
    case ErrorKind::unsupported: return "unsupported";
  }
  return "unknown";
}

std::string_view to_string(DataType type) {
  switch (type) {
    case DataType::float32: return "float32";
    case DataType::float64: return "float64";
    case DataType::float16: return "float16";
    case DataType::bfloat16: return "bfloat16";
    case DataType::int32: return "int32";
    case DataType::int64: return "int64";
    case DataType::uint8: return "uint8";
    case DataType::int8: return "int8";
    case DataType::int16: return "int16";
    case DataType::uint16: return "uint16";
    case DataType::uint32: return "uint32";
    case DataType::uint64: return "uint64";
    case DataType::boolean: return "bool";
  }
  return "unknown";
}

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::avg: return "avg";
    case ReduceOp::min: return "min";
    case ReduceOp::max: return "max";
    case ReduceOp::prod: return "prod";
    case ReduceOp::bit_and: return "band";
    case ReduceOp::bit_or: return "bor";
    case ReduceOp::bit_xor: return "bxor";
    case ReduceOp::premul_sum: return "premul_sum";
  }
  return "unknown";
}

std::string_view to_string(Collective collective) {
  switch (collective) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::broadcast: return "broadcast";
    case Collective::all_gather: return "all_gather";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::barrier: return "barrier";
    case Collective::reduce: return "reduce";
    case Collective::gather: return "gather";
    case Collective::scatter: return "scatter";
    case Collective::all_to_all: return "all_to_all";
  }
  return "unknown";
}

std::string_view to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::automatic: return "auto";
    case Algorithm::one_shot: return "one_shot";
    case Algorithm::sra: return "sra";
    case Algorithm::ring: return "ring";
    case Algorithm::tree: return "tree";
    case Algorithm::recursive_doubling: return "recursive_doubling";
    case Algorithm::binomial: return "binomial";
    case Algorithm::pairwise: return "pairwise";
    case Algorithm::hierarchical: return "hierarchical";
  }
  return "unknown";
}

}  // namespace qccl
