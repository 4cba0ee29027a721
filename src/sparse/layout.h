// The properties of a sparse sum that must be equal on all ranks, with their check: sizes, type and options; and the
// layout of its data in messages.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qccl/sparse.h"

namespace qccl::sparse {

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

// The layout of a tensor with given sizes. A place is the number of an index tuple, the first dimension being the
// slowest.
struct Layout {
  // Throws invalid_argument.
  Layout(const SparseView& tensor, const SparseOptions& options);

  std::vector<std::int64_t> sparse_sizes;
  std::vector<std::int64_t> dense_sizes;
  DataType type;
  ReduceOp op;
  std::uint64_t places = 1;  // number of places
  std::size_t block = 1;     // elements at each place
  std::size_t block_bytes = 0;

  // If an index is out of range, throws invalid_argument, which names the element.
  std::vector<std::uint64_t> places_of(std::span<const std::int64_t> indices) const;
  // The reverse: a row for each dimension.
  std::vector<std::int64_t> indices_of(std::span<const std::uint64_t> places) const;
  // Bytes of one place in messages.
  std::size_t place_bytes() const { return places <= std::uint64_t{1} << 32 ? 4 : 8; }
};

Header header_of(const Layout& layout, std::size_t elements, const SparseOptions& options);
// Throws invalid_argument, naming two ranks that differ, alike on all ranks.
void check_alike(std::span<const Header> headers);

}  // namespace qccl::sparse
