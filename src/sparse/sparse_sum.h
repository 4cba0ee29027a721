// The state of a SparseSum.
#pragma once

#include <cstddef>
#include <vector>

#include "sparse/layout.h"

namespace qccl {

struct SparseSum::State {
  State(const SparseView& own, int rank, int world, const SparseOptions& options);

  // Call once the headers of all ranks are here; throws like SparseSum::make_room().
  void take_headers();
  void make_room();
  Part part(int rank);

  std::size_t elements_of(int rank) const { return begins[static_cast<std::size_t>(rank) + 1] - begin_of(rank); }
  std::size_t begin_of(int rank) const { return begins[static_cast<std::size_t>(rank)]; }
  std::uint64_t place_at(std::size_t element) const;
  bool is_dense_less() const;

  const sparse::Layout layout;
  const int rank;
  const int world;
  std::vector<std::uint64_t> own_places;
  std::vector<std::byte> own_values;
  sparse::Header header;
  std::vector<sparse::Header> headers;
  // The elements of all ranks, one rank after another.
  std::vector<std::size_t> begins;  // in elements, and the end of the last
  std::vector<std::byte> places;
  std::vector<std::byte> values;
};

namespace sparse {

// Sorts a tensor's elements by place and adds duplicates, unless that loses something (16-bit floats would be rounded).
void sort(const Layout& layout, std::vector<std::uint64_t>& places, std::vector<std::byte>& values);
// The sum of the parts of all ranks.
SparseTensor merge(const SparseSum::State& state);
// The sum through dense tensors, from this rank's elements. Collective.
SparseTensor add_dense(Communicator& group, const SparseSum::State& state, const SparseOptions& options);

}  // namespace sparse
}  // namespace qccl
