#include "sparse/sparse_sum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace qccl::sparse {
namespace {

constexpr std::size_t kElements = 0;
constexpr std::size_t kSparseDimensions = 4;
constexpr std::size_t kDenseDimensions = 5;
constexpr std::size_t kSizes = 6;

// The product of the sizes; throws if it is out of range.
std::uint64_t product(const std::vector<std::int64_t>& sizes) {
  std::uint64_t all = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0) throw invalid(fmt::format("a dimension can't have the size {}", size));
    if (__builtin_mul_overflow(all, static_cast<std::uint64_t>(size), &all) ||
        all > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      throw invalid(fmt::format("sizes [{}] are too large", fmt::join(sizes, ", ")));
    }
  }
  return all;
}

std::string text_of(const Header& header) {
  const auto sparse = static_cast<std::size_t>(header[kSparseDimensions]);
  const auto all = sparse + static_cast<std::size_t>(header[kDenseDimensions]);
  constexpr const char* kDense[] = {"sparse", "dense", "automatic"};
  return fmt::format("size [{}] with {} sparse dimensions of {}, {}, {}",
                     fmt::join(header.begin() + kSizes, header.begin() + kSizes + std::min(all, kMaxDimensions), ", "),
                     sparse, to_string(static_cast<DataType>(header[1])), to_string(static_cast<ReduceOp>(header[2])),
                     kDense[header[3] % 3]);
}

}  // namespace

Error invalid(const std::string& what) {
  return Error({.kind = ErrorKind::invalid_argument,
                .message = "QCCL all_reduce of a sparse tensor: " + what,
                .operation = "sparse_all_reduce"});
}

Layout::Layout(const SparseView& tensor, const SparseOptions& options)
    : sparse_sizes(tensor.sparse_sizes), dense_sizes(tensor.dense_sizes), type(tensor.type), op(options.op) {
  const std::size_t dimensions = sparse_sizes.size() + dense_sizes.size();
  if (sparse_sizes.empty()) throw invalid("it has no sparse dimension");
  if (dimensions > kMaxDimensions) {
    throw invalid(fmt::format("it has {} dimensions, at most {} can be", dimensions, kMaxDimensions));
  }
  if (op != ReduceOp::sum && op != ReduceOp::avg && op != ReduceOp::premul_sum) {
    throw invalid(fmt::format("there is no {}, only sum, avg and premul_sum", to_string(op)));
  }
  if (!supports(type, op)) throw invalid(fmt::format("there is no {} of {}", to_string(op), to_string(type)));
  linear_size = product(sparse_sizes);
  block = product(dense_sizes);
  block_bytes = block * element_bytes(type);
  if (tensor.indices.size() % sparse_sizes.size() != 0) {
    throw invalid(fmt::format("{} indices are no whole number for each of {} dimensions", tensor.indices.size(),
                              sparse_sizes.size()));
  }
}

std::vector<std::uint64_t> Layout::linear_indices_of(std::span<const std::int64_t> indices) const {
  const std::size_t elements = indices.size() / sparse_sizes.size();
  std::vector<std::uint64_t> result(elements);
  for (std::size_t d = 0; d < sparse_sizes.size(); ++d) {
    const std::span<const std::int64_t> row = indices.subspan(d * elements, elements);
    const auto size = static_cast<std::uint64_t>(sparse_sizes[d]);
    for (std::size_t i = 0; i < elements; ++i) {
      const auto index = static_cast<std::uint64_t>(row[i]);
      if (index >= size) {
        throw invalid(fmt::format("element {} has the index {} in dimension {}, whose size is {}", i, row[i], d, size));
      }
      result[i] = result[i] * size + index;
    }
  }
  return result;
}

std::vector<std::int64_t> Layout::indices_of(std::span<const std::uint64_t> from) const {
  std::vector<std::int64_t> result(from.size() * sparse_sizes.size());
  std::vector<std::uint64_t> rest(from.begin(), from.end());
  for (std::size_t d = sparse_sizes.size(); d-- > 0;) {
    const auto size = static_cast<std::uint64_t>(sparse_sizes[d]);
    for (std::size_t i = 0; i < from.size(); ++i) {
      result[d * from.size() + i] = static_cast<std::int64_t>(rest[i] % size);
      rest[i] /= size;
    }
  }
  return result;
}

Header header_of(const Layout& layout, std::size_t elements, const SparseOptions& options) {
  Header header{static_cast<std::int64_t>(elements),
                static_cast<std::int64_t>(layout.type),
                static_cast<std::int64_t>(layout.op),
                options.dense ? (*options.dense ? 1 : 0) : 2,
                static_cast<std::int64_t>(layout.sparse_sizes.size()),
                static_cast<std::int64_t>(layout.dense_sizes.size())};
  const auto end = std::copy(layout.sparse_sizes.begin(), layout.sparse_sizes.end(), header.begin() + kSizes);
  std::copy(layout.dense_sizes.begin(), layout.dense_sizes.end(), end);
  return header;
}

void check_alike(std::span<const Header> headers) {
  for (std::size_t rank = 1; rank < headers.size(); ++rank) {
    if (std::equal(headers[rank].begin() + kElements + 1, headers[rank].end(), headers[0].begin() + kElements + 1)) {
      continue;
    }
    throw invalid(
        fmt::format("rank 0 of the group has {}; rank {} has {}", text_of(headers[0]), rank, text_of(headers[rank])));
  }
}

}  // namespace qccl::sparse
