// Calls that consist of messages with tags that users may not take, because their numbers have no place in the group's
// order of collectives: torch's monitored barrier and sums of sparse tensors.
#pragma once

#include "work/torch_call.h"

namespace qccl::torch_binding {

// Rank 0 receives from every rank and answers all of them, or names the missing ranks, worded as in torch's other
// backends. Collective over the group. Every rank passes the same `tag`, which no other message uses.
// Throws Error(deadline_exceeded). On rank 0 it names the first rank that did not arrive in time, or, with
// `wait_all_ranks`, all of them; on the other ranks it says that rank 0 did not answer. The group is then lost, as
// after every missed deadline, except with a timeout of 0. Without a timeout, the group's timeout applies.
void monitored_barrier(Communicator& group, int tag, std::optional<std::chrono::milliseconds> timeout,
                       bool wait_all_ranks);

struct SparseReduction {
  at::Tensor tensor;  // COO; becomes the result, coalesced
  c10d::ReduceOp op;
  int rank = 0;
  int world = 1;
  int tag = 0;  // the same on all ranks; no other message may use it
};

// Adds an all_reduce of a sparse tensor to the call. It uses qccl::SparseSum, but sends it differently from
// qccl::sparse_all_reduce(): an all_gather of headers tells every rank how many elements each peer has; messages then
// carry the elements. Supports SUM, AVG and PREMUL_SUM, added in rank order, 16-bit floats in float32. ValueError for
// tensors that have no such sum. If shapes differ between ranks, the Work fails on all of them with ValueError.
void add_sparse_all_reduce(SparseReduction reduction, TorchCall& call);

}  // namespace qccl::torch_binding
