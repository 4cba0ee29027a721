// NCCL's collectives. Each is checked when it is called, inside of a group too; calls without elements move nothing.
#include "buffers.h"
#include "groups.h"
#include "results.h"
#include "types.h"

namespace qccl::nccl {
namespace {

// A call as the program made it.
struct Call {
  Collective collective;
  const void* input;
  void* output;
  std::size_t count;
  ncclDataType_t type;
  ncclComm_t comm;
  cudaStream_t stream;
  ncclRedOp_t op = ncclSum;
  int root = 0;
};

// The same, checked. Buffers that this rank does not use are null.
struct Checked {
  Collective collective;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type{};
  Reduction reduction{};
  CallOptions options{};
};

// The scalar as it is when the stream comes to the call.
double factor_of(Communicator& group, const Checked& call, const ncclComm& comm, cudaStream_t stream) {
  const void* const scalar = call.reduction.scalar;
  if (scalar == nullptr) return call.reduction.factor;
  const auto source = stream_of(comm, stream, {scalar});
  if (!source) return read_scalar(scalar, call.type);
  double value = 0;
  fetch(group, scalar, *source, &value, element_bytes(call.type));
  return read_scalar(&value, call.type);
}

Work post(Communicator& group, const Checked& call, const CallOptions& options) {
  const auto& [collective, input, output, count, type, reduction, unused] = call;
  switch (collective) {
    case Collective::all_reduce: return group.all_reduce_async(input, output, count, type, options);
    case Collective::reduce: return group.reduce_async(input, output, count, type, options);
    case Collective::reduce_scatter: return group.reduce_scatter_async(input, output, count, type, options);
    case Collective::all_gather: return group.all_gather_async(input, output, count, type, options);
    case Collective::gather: return group.gather_async(input, output, count, type, options);
    case Collective::scatter: return group.scatter_async(input, output, count, type, options);
    case Collective::all_to_all: return group.all_to_all_async(input, output, count, type, options);
    case Collective::barrier: return group.barrier_async(options);
    case Collective::broadcast: break;
  }
  if (input != nullptr && input != output) copy(group, input, output, count * element_bytes(type), options.stream);
  return group.broadcast_async(output, count, type, options);
}

Checked check(const Call& call, const ncclComm& comm, const Communicator& group) {
  const bool reduces = is_reduction(call.collective);
  Checked checked{.collective = call.collective, .count = call.count, .type = type_of(call.type, reduces)};
  if (reduces) checked.reduction = reduction_of(comm, call.op, checked.type);
  bool reads = true;
  bool writes = true;
  if (is_rooted(call.collective)) {
    if (call.root < 0 || call.root >= group.size()) {
      refuse_argument("root " + std::to_string(call.root) + " of " + std::to_string(group.size()) + " ranks");
    }
    const bool is_root = call.root == group.rank();
    reads = is_root || call.collective == Collective::reduce || call.collective == Collective::gather;
    writes = is_root || call.collective == Collective::broadcast || call.collective == Collective::scatter;
  }
  if (call.count > 0 && ((reads && call.input == nullptr) || (writes && call.output == nullptr))) {
    refuse_argument(std::string(to_string(call.collective)) + " with a null buffer");
  }
  if (reads) checked.input = call.input;
  if (writes) checked.output = call.output;
  checked.options.op = checked.reduction.op;
  checked.options.root = call.root;
  return checked;
}

ncclResult_t run(const Call& call) {
  return guarded([&] {
    const CommPtr comm = find(call.comm);
    Checked checked = check(call, *comm, comm->group_for_operation());
    if (call.count == 0) return ncclSuccess;
    checked.options.stream = stream_of(*comm, call.stream, {checked.input, checked.output});
    submit({.comm = comm,
            .post =
                [comm = comm.get(), checked, stream = call.stream](Communicator& group, bool awaited) {
                  CallOptions options = checked.options;
                  options.premul_factor = factor_of(group, checked, *comm, stream);
                  options.awaited = awaited;
                  return post(group, checked, options);
                },
            .stream = checked.options.stream});
    return ncclSuccess;
  });
}

}  // namespace
}  // namespace qccl::nccl

using namespace qccl::nccl;
using qccl::Collective;

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return run({Collective::all_reduce, input, output, count, type, comm, stream, op});
}

ncclResult_t ncclReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return run({Collective::reduce, input, output, count, type, comm, stream, op, root});
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return run({Collective::reduce_scatter, input, output, count, type, comm, stream, op});
}

ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return run({Collective::broadcast, input, output, count, type, comm, stream, ncclSum, root});
}

ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return run({Collective::broadcast, buffer, buffer, count, type, comm, stream, ncclSum, root});
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return run({Collective::all_gather, input, output, count, type, comm, stream});
}

ncclResult_t ncclGather(const void* input, void* output, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return run({Collective::gather, input, output, count, type, comm, stream, ncclSum, root});
}

ncclResult_t ncclScatter(const void* input, void* output, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream) {
  return run({Collective::scatter, input, output, count, type, comm, stream, ncclSum, root});
}

ncclResult_t ncclAlltoAll(const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  return run({Collective::all_to_all, input, output, count, type, comm, stream});
}
