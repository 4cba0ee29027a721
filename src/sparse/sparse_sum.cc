#include "sparse/sparse_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/reduce/reduce.h"

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
