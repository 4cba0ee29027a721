// all_reduce of sparse tensors (COO): uses qccl::SparseSum, but sends it differently from qccl::sparse_all_reduce().
// An all_gather of headers tells every rank how many elements each peer has. Messages then carry the elements; unlike
// collectives, they need no place in the group's order of calls.
#pragma once

#include "work/work.h"

namespace qccl::torch_binding {

struct SparseReduction {
  at::Tensor tensor;  // becomes the result, coalesced
  c10d::ReduceOp op;
  int rank = 0;
  int world = 1;
  int tag = 0;  // the same on all ranks; no other message may use it
  CallOptions options;
};

// Supports SUM, AVG and PREMUL_SUM, added in rank order, 16-bit floats in float32. ValueError for tensors that have no
// such sum. If shapes differ between ranks, the Work fails on all of them with ValueError.
Call sparse_all_reduce(SparseReduction reduction);

}  // namespace qccl::torch_binding
