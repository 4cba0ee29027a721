// Sums of sparse tensors: every rank has some elements of a large tensor, as gradients of embeddings have, and all
// ranks get the sum of all of them.
//
//   std::vector<std::int64_t> rows = {7, 3, 7};                       // any order, with duplicates
//   std::vector<float> values(3 * 64);                                // 64 a row
//   qccl::SparseTensor sum = qccl::sparse_all_reduce(
//       comm, {.sparse_sizes = {50'000}, .dense_sizes = {64}, .indices = rows, .values = values.data()});
//   // sum.indices: ascending, each once; sum.values_as<float>(): 64 for each
//
// The format is COO, as torch.sparse_coo_tensor has it: each stored element is a place in the sparse dimensions and a
// block of the size of the dense ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "qccl/communicator.h"

namespace qccl {

// A sparse tensor in the caller's memory. At least one sparse dimension, at most 16 of both kinds.
struct SparseView {
  std::vector<std::int64_t> sparse_sizes{};
  std::vector<std::int64_t> dense_sizes{};
  DataType type = DataType::float32;
  // A row for each sparse dimension, each with as many indices as elements are stored. The same place may come twice:
  // its values are added.
  std::span<const std::int64_t> indices{};
  const void* values = nullptr;  // a block for each element stored, one after the other
};

// A sparse tensor with memory of its own. Places ascend, the first dimension being the slowest, each there once.
struct SparseTensor {
  std::vector<std::int64_t> sparse_sizes{};
  std::vector<std::int64_t> dense_sizes{};
  DataType type = DataType::float32;
  std::vector<std::int64_t> indices{};
  std::vector<std::byte> values{};

  // Elements stored.
  std::size_t elements() const { return sparse_sizes.empty() ? 0 : indices.size() / sparse_sizes.size(); }
  template <class T>
  std::span<const T> values_as() const {
    return {reinterpret_cast<const T*>(values.data()), values.size() / sizeof(T)};
  }
};

struct SparseOptions {
  ReduceOp op = ReduceOp::sum;  // or avg, premul_sum
  double premul_factor = 1;     // as in CallOptions
  // Whether the ranks add up dense tensors: the result is the same. Left out: where that is less to send. Alike on all.
  std::optional<bool> dense{};
  std::optional<Milliseconds> timeout{};  // of each step
};

// The sum over all ranks, the same bits on all. Ranks may store different numbers of elements, or none. A place is in
// the result if a rank has it, whatever the sum. Each rank's values of a place are added first, in their order, then
// those of the ranks in rank order; 16-bit floats are added in float32 and rounded once; a sum that is zero is +0.
// Throws Error(invalid_argument) with nothing sent if the call is wrong, and on all ranks, naming two that differ, for
// other sizes, types or options. Blocking, collective, in the group's sequence. Not between group_start() and
// group_end(). Is never compressed.
SparseTensor sparse_all_reduce(Communicator& group, const SparseView& tensor, const SparseOptions& options = {});

// The same sum without the sending, for those who send by other means: every rank's header() to all, then every rank's
// part() to all. SparseOptions::dense and timeout mean nothing to it.
class SparseSum {
 public:
  // Takes a copy of the tensor, in order of place. Throws invalid_argument.
  SparseSum(const SparseView& own, int rank, int world, const SparseOptions& options = {});
  ~SparseSum();
  SparseSum(SparseSum&&) noexcept;
  SparseSum& operator=(SparseSum&&) = delete;

  // This rank's, and room for those of all ranks, in rank order.
  std::span<const std::int64_t> header() const;
  std::span<std::int64_t> headers();
  // Once headers() is filled: makes room for the parts. Throws invalid_argument, alike on all ranks.
  void make_room();

  // A rank's elements: places as one number each, and values. This rank's are there; the others' are to be filled.
  struct Part {
    std::span<std::byte> places;
    std::span<std::byte> values;
  };
  Part part(int rank);

  // Once all parts are filled.
  SparseTensor finish();

  struct State;  // the library's own

 private:
  friend SparseTensor sparse_all_reduce(Communicator& group, const SparseView& tensor, const SparseOptions& options);
  std::unique_ptr<State> state_;
};

}  // namespace qccl
