// all_reduce of sparse tensors (COO): qccl::SparseSum, sent otherwise than by qccl::sparse_all_reduce(). Every rank
// tells the others how many elements it has and then sends them: an all_gather of headers, and messages, which unlike
// collectives need no place in the group's order of calls.
#pragma once

#include "work/work.h"

namespace qccl::torch_binding {

struct SparseReduction {
  at::Tensor tensor;  // becomes the result, coalesced
  c10d::ReduceOp op;
  int rank = 0;
  int world = 1;
  int tag = 0;  // the same on all ranks, and no other message's
  CallOptions options;
};

// SUM, AVG and PREMUL_SUM, added in rank order, 16-bit floats in float32. ValueError for tensors that have no such sum;
// shapes that differ between ranks fail on all of them, with ValueError from the Work.
Call sparse_all_reduce(SparseReduction reduction);

}  // namespace qccl::torch_binding
