// Sums of sparse tensors: every rank has some elements of a large tensor, as gradients of embeddings do, and all ranks
// get the sum of all of them.
//
//   std::vector<std::int64_t> rows = {7, 3, 7};                       // any order, with duplicates
//   std::vector<float> values(3 * 64);                                // 64 a row
//   qccl::SparseTensor sum = qccl::sparse_all_reduce(
//       comm, {.sparse_sizes = {50'000}, .dense_sizes = {64}, .indices = rows, .values = values.data()});
//   // sum.indices: ascending, each once; sum.values_as<float>(): 64 for each
//
// The format is COO, as in torch.sparse_coo_tensor: each stored element is an index in the sparse dimensions and a
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
  std::vector<std::int64_t> sparse_sizes{};  // of the dimensions that an index names
  std::vector<std::int64_t> dense_sizes{};   // of a stored block; empty: single elements
  DataType type = DataType::float32;         // of an element
  // A row for each sparse dimension, each with as many indices as elements are stored. Values of a repeated index are
  // added.
  std::span<const std::int64_t> indices{};
  const void* values = nullptr;  // a block for each stored element, one after another
};

// A sparse tensor that owns its memory. Each index occurs once; indices ascend, the first dimension being the slowest.
struct SparseTensor {
  std::vector<std::int64_t> sparse_sizes{};  // of the dimensions that an index names
  std::vector<std::int64_t> dense_sizes{};   // of a stored block; empty: single elements
  DataType type = DataType::float32;         // of an element
  std::vector<std::int64_t> indices{};       // a row for each sparse dimension
  std::vector<std::byte> values{};           // a block for each stored element

  // Number of stored elements.
  std::size_t elements() const { return sparse_sizes.empty() ? 0 : indices.size() / sparse_sizes.size(); }
  template <class T>
  std::span<const T> values_as() const {
    return {reinterpret_cast<const T*>(values.data()), values.size() / sizeof(T)};
  }
};

// Settings of sparse_all_reduce().
struct SparseOptions {
  ReduceOp op = ReduceOp::sum;  // or avg, premul_sum
  double premul_factor = 1;     // as in CallOptions
  // Whether the ranks add dense tensors; the result is the same. Unset: dense if it sends less. The same on all ranks.
  std::optional<bool> dense{};
  std::optional<Milliseconds> timeout{};  // of each step
};

// The sum over all ranks, the same bits on all of them. Ranks may store different numbers of elements, or none. An
// index is in the result if any rank has it, even if its sum is zero. Each rank first adds its own values of an index,
// in their order; then the ranks' values are added in rank order. 16-bit floats are added in float32 and rounded once;
// a zero sum is +0. Never compressed. Blocking, collective, in the group's sequence; each step ends by its timeout.
// Throws Error(invalid_argument), with nothing sent, if the call is wrong; if sizes, types or options differ between
// ranks, throws it on all ranks, naming two that differ; otherwise throws what Communicator's collectives throw. Must
// not be called between group_start() and group_end().
SparseTensor sparse_all_reduce(Communicator& group, const SparseView& tensor, const SparseOptions& options = {});

// The same sum without communication, for callers that send by other means: send every rank's header() to all, then
// every rank's part() to all. It ignores SparseOptions::dense and timeout.
class SparseSum {
 public:
  // Copies the tensor, sorted by index. Throws invalid_argument.
  SparseSum(const SparseView& own, int rank, int world, const SparseOptions& options = {});
  ~SparseSum();
  SparseSum(SparseSum&&) noexcept;
  SparseSum& operator=(SparseSum&&) = delete;

  // This rank's header, and room for the headers of all ranks, in rank order.
  std::span<const std::int64_t> header() const;
  std::span<std::int64_t> headers();
  // Makes room for the parts; call it once headers() is filled. Throws invalid_argument, alike on all ranks.
  void make_room();

  // A rank's elements: the linear index of each (4 or 8 bytes, the first dimension being the slowest), and the values.
  // This rank's are filled in; the caller fills the others'. Valid as long as the SparseSum.
  struct Part {
    std::span<std::byte> places;  // linear indices
    std::span<std::byte> values;  // their blocks
  };
  // The part of a rank.
  Part part(int rank);

  // Returns the sum; call it once all parts are filled.
  SparseTensor finish();

  struct State;  // the library's own

 private:
  friend SparseTensor sparse_all_reduce(Communicator& group, const SparseView& tensor, const SparseOptions& options);
  std::unique_ptr<State> state_;
};

}  // namespace qccl
