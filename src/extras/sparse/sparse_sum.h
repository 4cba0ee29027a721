// A sparse sum: the properties of a tensor that must be equal on all ranks, its data in messages, and the state of a
// SparseSum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qccl/sparse.h"

namespace qccl {
namespace sparse {

// | number   | content                                                        |
// |----------|----------------------------------------------------------------|
// | 0        | elements stored                                                |
// | 1        | DataType                                                       |
// | 2        | ReduceOp                                                       |
// | 3        | SparseOptions::dense: 0 or 1, 2 if left out                    |
// | 4, 5     | number of sparse and of dense dimensions                       |
// | 6 .. 21  | their sizes, then 0                                            |
inline constexpr std::size_t kMaxDimensions = 16;
using Header = std::array<std::int64_t, 6 + kMaxDimensions>;

Error invalid(const std::string& what);

// The layout of a tensor with given sizes. A linear index is the number of an index tuple; the first dimension is the
// slowest.
struct Layout {
  // Throws invalid_argument.
  Layout(const SparseView& tensor, const SparseOptions& options);

  std::vector<std::int64_t> sparse_sizes;
  std::vector<std::int64_t> dense_sizes;
  DataType type;
  ReduceOp op;
  std::uint64_t linear_size = 1;  // number of index tuples
  std::size_t block = 1;          // elements at each
  std::size_t block_bytes = 0;

  // Throws invalid_argument, which names the element, if an index is out of range.
  std::vector<std::uint64_t> linear_indices_of(std::span<const std::int64_t> indices) const;
  // The reverse: a row for each dimension.
  std::vector<std::int64_t> indices_of(std::span<const std::uint64_t> linear) const;
  // Bytes of one linear index in messages.
  std::size_t index_bytes() const { return linear_size <= std::uint64_t{1} << 32 ? 4 : 8; }
};

// The type in which sums are kept.
constexpr DataType sum_type(DataType type) {
  return type == DataType::float16 || type == DataType::bfloat16 ? DataType::float32 : type;
}

Header header_of(const Layout& layout, std::size_t elements, const SparseOptions& options);
// Throws invalid_argument, naming two ranks that differ, alike on all ranks.
void check_alike(std::span<const Header> headers);

}  // namespace sparse

struct SparseSum::State {
  State(const SparseView& own, int rank, int world, const SparseOptions& options);

  // Call once the headers of all ranks are here; throws like SparseSum::make_room().
  void take_headers();
  void make_room();
  Part part(int rank);

  std::size_t elements_of(int rank) const { return begins[static_cast<std::size_t>(rank) + 1] - begin_of(rank); }
  std::size_t begin_of(int rank) const { return begins[static_cast<std::size_t>(rank)]; }
  std::uint64_t linear_index_at(std::size_t element) const;
  bool is_dense_less() const;

  const sparse::Layout layout;
  const int rank;
  const int world;
  std::vector<std::uint64_t> own_linear;
  std::vector<std::byte> own_values;
  sparse::Header header;
  std::vector<sparse::Header> headers;
  // The elements of all ranks, one rank after another.
  std::vector<std::size_t> begins;  // in elements, and the end of the last
  std::vector<std::byte> linear;
  std::vector<std::byte> values;
};

namespace sparse {

// Sorts a tensor's elements by linear index and adds duplicates, except 16-bit floats, which would be rounded.
void sort(const Layout& layout, std::vector<std::uint64_t>& linear, std::vector<std::byte>& values);
// The sum of the parts of all ranks.
SparseTensor merge(const SparseSum::State& state);
// The sum through dense tensors, from this rank's elements. Collective.
SparseTensor add_dense(Communicator& group, const SparseSum::State& state, const SparseOptions& options);

}  // namespace sparse
}  // namespace qccl
