// The sums themselves: of one rank's duplicates, of the parts of all ranks, and through dense tensors. All three add in
// the same order, so that they give the same bits.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "sparse/arithmetic.h"
#include "sparse/sparse_sum.h"

namespace qccl::sparse {
namespace {

template <class T>
using SumOf = typename Arithmetic<T>::Sum;

template <class T>
void load(SumOf<T>* target, const std::byte* source, std::size_t n) {
  const T* from = reinterpret_cast<const T*>(source);
  for (std::size_t i = 0; i < n; ++i) target[i] = Arithmetic<T>::widen(from[i]);
}

template <class T>
void add(SumOf<T>* target, const std::byte* source, std::size_t n) {
  const T* from = reinterpret_cast<const T*>(source);
  for (std::size_t i = 0; i < n; ++i) target[i] = Arithmetic<T>::add(target[i], Arithmetic<T>::widen(from[i]));
}

// Writes a result, place by place.
template <class T>
class Writer {
 public:
  explicit Writer(const SparseSum::State& state)
      : layout_(state.layout), divisor_(layout_.op == ReduceOp::avg ? state.world : 1) {}
  void append(std::uint64_t place, const SumOf<T>* sum) {
    places_.push_back(place);
    values_.resize(values_.size() + layout_.block_bytes);
    T* const to = reinterpret_cast<T*>(values_.data() + values_.size() - layout_.block_bytes);
    for (std::size_t i = 0; i < layout_.block; ++i) {
      to[i] = Arithmetic<T>::narrow(Arithmetic<T>::finished(sum[i], divisor_));
    }
  }
  SparseTensor take() {
    return {layout_.sparse_sizes, layout_.dense_sizes, layout_.type, layout_.indices_of(places_), std::move(values_)};
  }

 private:
  const Layout& layout_;
  const int divisor_;
  std::vector<std::uint64_t> places_;
  std::vector<std::byte> values_;
};

// Adds up the elements of one place, from `i` on, and moves `i` past them.
template <class T, class PlaceAt>
void add_up(SumOf<T>* sum, const Layout& layout, const std::byte* values, std::size_t& i, std::size_t end,
            const PlaceAt& place_at) {
  const std::uint64_t place = place_at(i);
  load<T>(sum, values + i * layout.block_bytes, layout.block);
  for (++i; i < end && place_at(i) == place; ++i) add<T>(sum, values + i * layout.block_bytes, layout.block);
}

template <class T>
void add_duplicates(const Layout& layout, std::vector<std::uint64_t>& places, std::vector<std::byte>& values) {
  std::size_t kept = 0;
  std::vector<SumOf<T>> sum(layout.block);
  for (std::size_t i = 0; i < places.size(); ++kept) {
    const std::uint64_t place = places[i];
    add_up<T>(sum.data(), layout, values.data(), i, places.size(), [&](std::size_t j) { return places[j]; });
    places[kept] = place;
    std::copy_n(reinterpret_cast<const std::byte*>(sum.data()), layout.block_bytes,
                values.data() + kept * layout.block_bytes);
  }
  places.resize(kept);
  values.resize(kept * layout.block_bytes);
}

void reorder(const Layout& layout, std::vector<std::uint64_t>& places, std::vector<std::byte>& values) {
  std::vector<std::pair<std::uint64_t, std::size_t>> order(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) order[i] = {places[i], i};
  std::ranges::sort(order);
  std::vector<std::byte> sorted(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    places[i] = order[i].first;
    std::copy_n(values.data() + order[i].second * layout.block_bytes, layout.block_bytes,
                sorted.data() + i * layout.block_bytes);
  }
  values.swap(sorted);
}

template <class T>
SparseTensor merge_as(const SparseSum::State& state) {
  const Layout& layout = state.layout;
  using Head = std::pair<std::uint64_t, int>;  // the next place of a rank, and the rank
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
  std::vector<std::size_t> next(state.begins.begin(), state.begins.end() - 1);
  for (int rank = 0; rank < state.world; ++rank) {
    if (state.elements_of(rank) > 0) heads.emplace(state.place_at(state.begin_of(rank)), rank);
  }
  const auto place_at = [&](std::size_t i) { return state.place_at(i); };
  Writer<T> writer(state);
  std::vector<SumOf<T>> sum(layout.block), part(layout.block);
  while (!heads.empty()) {
    const std::uint64_t place = heads.top().first;
    for (bool is_first = true; !heads.empty() && heads.top().first == place; is_first = false) {
      const int rank = heads.top().second;
      heads.pop();
      std::size_t& i = next[static_cast<std::size_t>(rank)];
      const std::size_t end = state.begins[static_cast<std::size_t>(rank) + 1];
      add_up<T>((is_first ? sum : part).data(), layout, state.values.data(), i, end, place_at);
      for (std::size_t k = 0; !is_first && k < layout.block; ++k) sum[k] = Arithmetic<T>::add(sum[k], part[k]);
      if (i < end) heads.emplace(place_at(i), rank);
    }
    writer.append(place, sum.data());
  }
  return writer.take();
}

std::size_t checked_product(std::size_t a, std::size_t b) {
  std::size_t all = 0;
  if (__builtin_mul_overflow(a, b, &all) ||
      all > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max())) {
    throw invalid("it is too large to be added up as a dense one");
  }
  return all;
}

template <class T>
SparseTensor add_dense_as(Communicator& group, const SparseSum::State& state, const SparseOptions& options) {
  const Layout& layout = state.layout;
  const std::size_t count = checked_product(layout.places, layout.block);
  checked_product(count, sizeof(SumOf<T>));
  std::vector<SumOf<T>> sums(count, SumOf<T>{});
  std::vector<std::uint8_t> is_there((layout.places + 7) / 8);  // a bit for each place
  for (std::size_t i = 0; i < state.own_places.size();) {
    const std::uint64_t place = state.own_places[i];
    is_there[place / 8] |= static_cast<std::uint8_t>(1u << place % 8);
    add_up<T>(sums.data() + place * layout.block, layout, state.own_values.data(), i, state.own_places.size(),
              [&](std::size_t j) { return state.own_places[j]; });
  }
  // In rank order, like sparse sums.
  const CallOptions in_order{.compression = none(), .algorithm = Algorithm::sra, .timeout = options.timeout};
  CallOptions either = in_order;
  either.op = ReduceOp::bit_or;
  const Work summed = group.all_reduce_async(sums.data(), sums.data(), count, sum_type(layout.type), in_order);
  const Work joined =
      group.all_reduce_async(is_there.data(), is_there.data(), is_there.size(), DataType::uint8, either);
  joined.wait();
  summed.wait();
  Writer<T> writer(state);
  for (std::uint64_t place = 0; place < layout.places; ++place) {
    if ((is_there[place / 8] >> place % 8 & 1) != 0) writer.append(place, sums.data() + place * layout.block);
  }
  return writer.take();
}

}  // namespace

void sort(const Layout& layout, std::vector<std::uint64_t>& places, std::vector<std::byte>& values) {
  if (!std::ranges::is_sorted(places)) reorder(layout, places, values);
  if (sum_type(layout.type) != layout.type || std::ranges::adjacent_find(places) == places.end()) return;
  with_type(layout.type, [&]<class T>() { add_duplicates<T>(layout, places, values); });
}

SparseTensor merge(const SparseSum::State& state) {
  return with_type(state.layout.type, [&]<class T>() { return merge_as<T>(state); });
}

SparseTensor add_dense(Communicator& group, const SparseSum::State& state, const SparseOptions& options) {
  return with_type(state.layout.type, [&]<class T>() { return add_dense_as<T>(group, state, options); });
}

}  // namespace qccl::sparse
