#include "extras/sparse/sparse_sum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/reduce/reduce.h"

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

namespace qccl {

using sparse::Header;
using sparse::invalid;

// ---- State

SparseSum::State::State(const SparseView& own, int own_rank, int ranks, const SparseOptions& options)
    : layout(own, options), rank(own_rank), world(ranks), own_linear(layout.linear_indices_of(own.indices)) {
  const std::size_t elements = own_linear.size();
  own_values.resize(elements * layout.block_bytes);
  if (!own_values.empty()) {
    if (own.values == nullptr) throw invalid(fmt::format("it has {} elements and no values", elements));
    std::memcpy(own_values.data(), own.values, own_values.size());
  }
  if (options.op == ReduceOp::premul_sum) {
    kernels::scale(layout.type, own_values.data(), own_values.data(), options.premul_factor, elements * layout.block);
  }
  sort(layout, own_linear, own_values);
  header = header_of(layout, own_linear.size(), options);
  headers.resize(static_cast<std::size_t>(world));
}

void SparseSum::State::take_headers() {
  sparse::check_alike(headers);
  begins = {0};
  for (const Header& other : headers) begins.push_back(begins.back() + static_cast<std::size_t>(other[0]));
}

void SparseSum::State::make_room() {
  linear.resize(begins.back() * layout.index_bytes());
  values.resize(begins.back() * layout.block_bytes);
  const Part own = part(rank);
  for (std::size_t i = 0; i < own_linear.size(); ++i) {
    std::memcpy(own.places.data() + i * layout.index_bytes(), &own_linear[i], layout.index_bytes());
  }
  std::ranges::copy(own_values, own.values.begin());
}

SparseSum::Part SparseSum::State::part(int of) {
  const auto cut = [&](std::vector<std::byte>& all, std::size_t bytes) {
    return std::span(all).subspan(begin_of(of) * bytes, elements_of(of) * bytes);
  };
  return {cut(linear, layout.index_bytes()), cut(values, layout.block_bytes)};
}

std::uint64_t SparseSum::State::linear_index_at(std::size_t element) const {
  const std::size_t width = layout.index_bytes();
  std::uint64_t index = 0;
  std::memcpy(&index, linear.data() + element * width, width);
  return index;
}

// Compares the bytes that a rank receives in either case, leaving out the common factor (world - 1) / world.
bool SparseSum::State::is_dense_less() const {
  const auto stored = static_cast<double>(begins.back());
  const auto all = static_cast<double>(layout.linear_size);
  const auto dense_block =
      static_cast<double>(layout.block) * static_cast<double>(element_bytes(sparse::sum_type(layout.type)));
  const auto sparse_block = static_cast<double>(layout.block_bytes + layout.index_bytes());
  return world > 1 && 2 * all * (dense_block + 1.0 / 8) < stored * sparse_block;
}

// ---- SparseSum

SparseSum::SparseSum(const SparseView& own, int rank, int world, const SparseOptions& options)
    : state_(std::make_unique<State>(own, rank, world, options)) {}
SparseSum::~SparseSum() = default;
SparseSum::SparseSum(SparseSum&&) noexcept = default;

std::span<const std::int64_t> SparseSum::header() const { return state_->header; }

std::span<std::int64_t> SparseSum::headers() {
  return {state_->headers.front().data(), state_->headers.size() * std::tuple_size_v<Header>};
}

void SparseSum::make_room() {
  state_->take_headers();
  state_->make_room();
}

SparseSum::Part SparseSum::part(int rank) { return state_->part(rank); }

SparseTensor SparseSum::finish() { return sparse::merge(*state_); }

// ---- The collective

namespace {

// Gathers one of the two lists of all ranks, in place.
Work gather_parts(Communicator& group, SparseSum::State& sum, std::span<std::byte> SparseSum::Part::*member,
                  const CallOptions& options) {
  std::vector<std::size_t> bytes;
  for (int rank = 0; rank < sum.world; ++rank) bytes.push_back((sum.part(rank).*member).size());
  return group.all_gather_v_async((sum.part(sum.rank).*member).data(), (sum.part(0).*member).data(), bytes,
                                  DataType::uint8, options);
}

}  // namespace

SparseTensor sparse_all_reduce(Communicator& group, const SparseView& tensor, const SparseOptions& options) {
  SparseSum sum(tensor, group.rank(), group.size(), options);
  const CallOptions plain{.compression = none(), .timeout = options.timeout};
  group.all_gather(sum.header().data(), sum.headers().data(), sum.header().size(), DataType::int64, plain);
  SparseSum::State& state = *sum.state_;
  state.take_headers();
  if (options.dense.value_or(state.is_dense_less())) return sparse::add_dense(group, state, options);
  state.make_room();
  const Work places = gather_parts(group, state, &SparseSum::Part::places, plain);
  const Work values = gather_parts(group, state, &SparseSum::Part::values, plain);
  places.wait();
  values.wait();
  return sum.finish();
}

}  // namespace qccl
