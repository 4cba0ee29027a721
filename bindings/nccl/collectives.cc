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
  CollectiveCall call;
  Reduction reduction{};
};

// The scalar as it is when the stream comes to the call.
double factor_of(Communicator& group, const Checked& checked, const ncclComm& comm, cudaStream_t stream) {
  const void* const scalar = checked.reduction.scalar;
  if (scalar == nullptr) return checked.reduction.factor;
  const DataType type = checked.call.type;
  const auto source = stream_of(comm, stream, {scalar});
  if (!source) return read_scalar(scalar, type);
  double value = 0;
  fetch(group, scalar, *source, &value, element_bytes(type));
  return read_scalar(&value, type);
}

// The root of a broadcast may give its data in another buffer.
void fill_buffer(Communicator& group, const CollectiveCall& call) {
  const bool is_other = call.input != nullptr && call.input != call.output;
  if (call.collective != Collective::broadcast || !is_other) return;
  copy(group, call.input, call.output, call.count * element_bytes(call.type), call.options.stream);
}

Checked check(const Call& call, const ncclComm& comm, const Communicator& group) {
  const bool reduces = is_reduction(call.collective);
  Checked checked{.call = {.collective = call.collective, .count = call.count, .type = type_of(call.type, reduces)}};
  if (reduces) checked.reduction = reduction_of(comm, call.op, checked.call.type);
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
  if (reads) checked.call.input = call.input;
  if (writes) checked.call.output = call.output;
  checked.call.options.op = checked.reduction.op;
  checked.call.options.root = call.root;
  return checked;
}

ncclResult_t run(const Call& call) {
  return guarded([&] {
    const CommPtr comm = find(call.comm);
    Checked checked = check(call, *comm, comm->group_for_operation());
    if (call.count == 0) return ncclSuccess;
    checked.call.options.stream = stream_of(*comm, call.stream, {checked.call.input, checked.call.output});
    submit({.comm = comm,
            .post =
                [comm = comm.get(), checked, stream = call.stream](Communicator& group, bool awaited) {
                  CollectiveCall own = checked.call;
                  own.options.premul_factor = factor_of(group, checked, *comm, stream);
                  own.options.awaited = awaited;
                  fill_buffer(group, own);
                  return group.post(own);
                },
            .stream = checked.call.options.stream});
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
