// The sums: of one rank's duplicates, of all ranks' parts, and through dense tensors. All three add in the same order
// and give the same bits.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <type_traits>
#include <utility>

#include "base/half.h"
#include "extras/sparse/sparse_sum.h"

namespace qccl::sparse {
namespace {

// Addition of elements of each type: 16-bit floats in float32, integers with wrap-around, booleans by or.

struct Boolean {
  std::uint8_t byte;
};

// Sum is the type in which elements are added; finished() is the last step of a sum before it is narrowed.
template <class T>
struct Arithmetic {
  using Sum = T;
  static Sum widen(T x) { return x; }
  static T narrow(Sum x) { return x; }
  static Sum add(Sum a, Sum b) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
  // A zero is +0, whether or not other ranks' zeros were added to it; NaNs are canonical.
  static Sum finished(Sum x, int divisor) {
    if constexpr (std::is_floating_point_v<T>) {
      if (x != x) return static_cast<T>(canonical_nan());
      return x / static_cast<T>(divisor) + T{0};
    } else {
      return x;
    }
  }
};

template <class Half, Half (*Round)(float)>
struct HalfArithmetic : Arithmetic<float> {
  static float widen(Half x) { return to_float(x); }
  static Half narrow(float x) { return Round(x); }
};
template <>
struct Arithmetic<float16> : HalfArithmetic<float16, to_float16> {};
template <>
struct Arithmetic<bfloat16> : HalfArithmetic<bfloat16, to_bfloat16> {};

template <>
struct Arithmetic<Boolean> {
  using Sum = Boolean;
  static Sum widen(Boolean x) { return x; }
  static Boolean narrow(Sum x) { return x; }
  static Sum add(Sum a, Sum b) { return {static_cast<std::uint8_t>(a.byte | b.byte)}; }
  static Sum finished(Sum x, int) { return {static_cast<std::uint8_t>(x.byte != 0 ? 1 : 0)}; }
};

// Calls function.template operator()<T>() with the C++ type of `type`.
template <class Function>
auto with_type(DataType type, const Function& function) {
  switch (type) {
    case DataType::float32: return function.template operator()<float>();
    case DataType::float64: return function.template operator()<double>();
    case DataType::float16: return function.template operator()<float16>();
    case DataType::bfloat16: return function.template operator()<bfloat16>();
    case DataType::int32: return function.template operator()<std::int32_t>();
    case DataType::int64: return function.template operator()<std::int64_t>();
    case DataType::uint8: return function.template operator()<std::uint8_t>();
    case DataType::int8: return function.template operator()<std::int8_t>();
    case DataType::int16: return function.template operator()<std::int16_t>();
    case DataType::uint16: return function.template operator()<std::uint16_t>();
    case DataType::uint32: return function.template operator()<std::uint32_t>();
    case DataType::uint64: return function.template operator()<std::uint64_t>();
    case DataType::boolean: break;
  }
  return function.template operator()<Boolean>();
}

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

// Writes a result, one linear index after another.
template <class T>
class Writer {
 public:
  explicit Writer(const SparseSum::State& state)
      : layout_(state.layout), divisor_(layout_.op == ReduceOp::avg ? state.world : 1) {}
  void append(std::uint64_t index, const SumOf<T>* sum) {
    linear_.push_back(index);
    values_.resize(values_.size() + layout_.block_bytes);
    T* const to = reinterpret_cast<T*>(values_.data() + values_.size() - layout_.block_bytes);
    for (std::size_t i = 0; i < layout_.block; ++i) {
      to[i] = Arithmetic<T>::narrow(Arithmetic<T>::finished(sum[i], divisor_));
    }
  }
  SparseTensor take() {
    return {layout_.sparse_sizes, layout_.dense_sizes, layout_.type, layout_.indices_of(linear_), std::move(values_)};
  }

 private:
  const Layout& layout_;
  const int divisor_;
  std::vector<std::uint64_t> linear_;
  std::vector<std::byte> values_;
};

// Elements before `end`, sorted by linear index, which index_at() returns.
template <class IndexAt>
struct SortedElements {
  const Layout& layout;
  const std::byte* values;
  std::size_t end;
  IndexAt index_at;

  const std::byte* at(std::size_t i) const { return values + i * layout.block_bytes; }
};

// Adds up the elements of one linear index, from `i` on, and moves `i` past them.
template <class T, class IndexAt>
void add_up(SumOf<T>* sum, const SortedElements<IndexAt>& elements, std::size_t& i) {
  const std::uint64_t index = elements.index_at(i);
  const std::size_t block = elements.layout.block;
  load<T>(sum, elements.at(i), block);
  for (++i; i < elements.end && elements.index_at(i) == index; ++i) add<T>(sum, elements.at(i), block);
}

template <class T>
void add_duplicates(const Layout& layout, std::vector<std::uint64_t>& linear, std::vector<std::byte>& values) {
  const SortedElements elements{layout, values.data(), linear.size(), [&](std::size_t i) { return linear[i]; }};
  std::size_t kept = 0;
  std::vector<SumOf<T>> sum(layout.block);
  for (std::size_t i = 0; i < linear.size(); ++kept) {
    const std::uint64_t index = linear[i];
    add_up<T>(sum.data(), elements, i);
    linear[kept] = index;
    std::copy_n(reinterpret_cast<const std::byte*>(sum.data()), layout.block_bytes,
                values.data() + kept * layout.block_bytes);
  }
  linear.resize(kept);
  values.resize(kept * layout.block_bytes);
}

void reorder(const Layout& layout, std::vector<std::uint64_t>& linear, std::vector<std::byte>& values) {
  std::vector<std::pair<std::uint64_t, std::size_t>> order(linear.size());
  for (std::size_t i = 0; i < linear.size(); ++i) order[i] = {linear[i], i};
  std::ranges::sort(order);
  std::vector<std::byte> sorted(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    linear[i] = order[i].first;
    std::copy_n(values.data() + order[i].second * layout.block_bytes, layout.block_bytes,
                sorted.data() + i * layout.block_bytes);
  }
  values.swap(sorted);
}

template <class T>
SparseTensor merge_as(const SparseSum::State& state) {
  const Layout& layout = state.layout;
  using Head = std::pair<std::uint64_t, int>;  // the next linear index of a rank, and the rank
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
  std::vector<std::size_t> next(state.begins.begin(), state.begins.end() - 1);
  for (int rank = 0; rank < state.world; ++rank) {
    if (state.elements_of(rank) > 0) heads.emplace(state.linear_index_at(state.begin_of(rank)), rank);
  }
  SortedElements elements{layout, state.values.data(), 0, [&](std::size_t i) { return state.linear_index_at(i); }};
  Writer<T> writer(state);
  std::vector<SumOf<T>> sum(layout.block), part(layout.block);
  while (!heads.empty()) {
    const std::uint64_t index = heads.top().first;
    for (bool is_first = true; !heads.empty() && heads.top().first == index; is_first = false) {
      const int rank = heads.top().second;
      heads.pop();
      std::size_t& i = next[static_cast<std::size_t>(rank)];
      elements.end = state.begins[static_cast<std::size_t>(rank) + 1];
      add_up<T>((is_first ? sum : part).data(), elements, i);
      for (std::size_t k = 0; !is_first && k < layout.block; ++k) sum[k] = Arithmetic<T>::add(sum[k], part[k]);
      if (i < elements.end) heads.emplace(elements.index_at(i), rank);
    }
    writer.append(index, sum.data());
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
  const std::size_t count = checked_product(layout.linear_size, layout.block);
  checked_product(count, sizeof(SumOf<T>));
  std::vector<SumOf<T>> sums(count, SumOf<T>{});
  std::vector<std::uint8_t> is_there((layout.linear_size + 7) / 8);  // a bit for each linear index
  const SortedElements elements{layout, state.own_values.data(), state.own_linear.size(),
                                [&](std::size_t i) { return state.own_linear[i]; }};
  for (std::size_t i = 0; i < elements.end;) {
    const std::uint64_t index = state.own_linear[i];
    is_there[index / 8] |= static_cast<std::uint8_t>(1u << index % 8);
    add_up<T>(sums.data() + index * layout.block, elements, i);
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
  for (std::uint64_t index = 0; index < layout.linear_size; ++index) {
    if ((is_there[index / 8] >> index % 8 & 1) != 0) writer.append(index, sums.data() + index * layout.block);
  }
  return writer.take();
}

}  // namespace

void sort(const Layout& layout, std::vector<std::uint64_t>& linear, std::vector<std::byte>& values) {
  if (!std::ranges::is_sorted(linear)) reorder(layout, linear, values);
  if (sum_type(layout.type) != layout.type || std::ranges::adjacent_find(linear) == linear.end()) return;
  with_type(layout.type, [&]<class T>() { add_duplicates<T>(layout, linear, values); });
}

SparseTensor merge(const SparseSum::State& state) {
  return with_type(state.layout.type, [&]<class T>() { return merge_as<T>(state); });
}

SparseTensor add_dense(Communicator& group, const SparseSum::State& state, const SparseOptions& options) {
  return with_type(state.layout.type, [&]<class T>() { return add_dense_as<T>(group, state, options); });
}

}  // namespace qccl::sparse
