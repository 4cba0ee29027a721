#include "support/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace qccl::testing {
namespace {

template <class T>
std::vector<T> load_all(const ByteVector& data) {
  std::vector<T> values(data.size() / sizeof(T));
  if (!data.empty()) std::memcpy(values.data(), data.data(), data.size());
  return values;
}

std::vector<float> load_halves(DataType type, const ByteVector& data) {
  std::vector<float> values(data.size() / 2);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(element(type, data, i));
  return values;
}

template <class T>
T smaller(T a, T b) {
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

template <class T>
T combine_floats(ReduceOp op, T a, T b) {
  constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
  if (std::isnan(a) || std::isnan(b)) return kNan;
  T result = 0;
  switch (op) {
    case ReduceOp::prod: result = a * b; break;
    case ReduceOp::min: result = smaller(a, b); break;
    case ReduceOp::max: result = -smaller(-a, -b); break;
    default: result = a + b; break;
  }
  return std::isnan(result) ? kNan : result;
}

template <class T>
T combine_integers(ReduceOp op, T a, T b) {
  using Wide = unsigned __int128;
  switch (op) {
    case ReduceOp::prod: return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case ReduceOp::min: return std::min(a, b);
    case ReduceOp::max: return std::max(a, b);
    case ReduceOp::bit_and: return static_cast<T>(a & b);
    case ReduceOp::bit_or: return static_cast<T>(a | b);
    case ReduceOp::bit_xor: return static_cast<T>(a ^ b);
    default: return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}

template <class T>
std::vector<T> accumulate(ReduceOp op, const std::vector<std::vector<T>>& ranks) {
  std::vector<T> result = ranks[0];
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    for (std::size_t i = 0; i < result.size(); ++i) {
      if constexpr (std::is_floating_point_v<T>) {
        result[i] = combine_floats(op, result[i], ranks[rank][i]);
      } else {
        result[i] = combine_integers(op, result[i], ranks[rank][i]);
      }
    }
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (op == ReduceOp::avg) {
      for (T& value : result) value /= static_cast<T>(ranks.size());
    }
  }
  return result;
}

template <class T>
ByteVector reduce_as(ReduceOp op, const std::vector<ByteVector>& inputs) {
  std::vector<std::vector<T>> ranks;
  for (const ByteVector& input : inputs) ranks.push_back(load_all<T>(input));
  const std::vector<T> result = accumulate(op, ranks);
  ByteVector bytes(inputs[0].size());
  if (!bytes.empty()) std::memcpy(bytes.data(), result.data(), bytes.size());
  return bytes;
}

ByteVector reduce_halves(DataType type, ReduceOp op, const std::vector<ByteVector>& inputs) {
  std::vector<std::vector<float>> ranks;
  for (const ByteVector& input : inputs) ranks.push_back(load_halves(type, input));
  const std::vector<float> result = accumulate(op, ranks);
  ByteVector bytes(inputs[0].size());
  for (std::size_t i = 0; i < result.size(); ++i) set_element(type, bytes.data(), i, result[i]);
  return bytes;
}

// Counts how many ranks hold true, for all ranks at once.
ByteVector reduce_booleans(ReduceOp op, const std::vector<ByteVector>& inputs) {
  ByteVector result(inputs[0].size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::size_t trues = 0;
    for (const ByteVector& input : inputs) trues += input[i] != std::byte{0};
    const bool all = trues == inputs.size();
    const bool is_all = op == ReduceOp::prod || op == ReduceOp::min || op == ReduceOp::bit_and;
    const bool is_odd = op == ReduceOp::bit_xor;
    result[i] = std::byte{is_odd ? trues % 2 != 0 : is_all ? all : trues > 0};
  }
  return result;
}

template <class T>
void scale(DataType type, double factor, ByteVector& data) {
  for (std::size_t i = 0; i < data.size() / element_bytes(type); ++i) {
    const T product = static_cast<T>(element(type, data, i)) * static_cast<T>(factor);
    set_element(type, data.data(), i, product);
  }
}

}  // namespace

double premul_factor_of(int member) {
  constexpr double kFactors[] = {0.1, -3, 0.5, 1, 1.0 / 3};
  return kFactors[member % 5];
}

std::vector<ByteVector> contributions(const engine::ResolvedCall& call, const std::vector<ByteVector>& inputs) {
  std::vector<ByteVector> result = inputs;
  for (std::size_t rank = 0; call.op == ReduceOp::premul_sum && rank < inputs.size(); ++rank) {
    const double factor = premul_factor_of(static_cast<int>(rank));
    if (call.type == DataType::float64) {
      scale<double>(call.type, factor, result[rank]);
    } else {
      scale<float>(call.type, factor, result[rank]);
    }
  }
  return result;
}

ByteVector reduce_in_rank_order(DataType type, ReduceOp op, const std::vector<ByteVector>& inputs) {
  switch (type) {
    case DataType::float32: return reduce_as<float>(op, inputs);
    case DataType::float64: return reduce_as<double>(op, inputs);
    case DataType::int32: return reduce_as<std::int32_t>(op, inputs);
    case DataType::int64: return reduce_as<std::int64_t>(op, inputs);
    case DataType::uint8: return reduce_as<std::uint8_t>(op, inputs);
    case DataType::int8: return reduce_as<std::int8_t>(op, inputs);
    case DataType::int16: return reduce_as<std::int16_t>(op, inputs);
    case DataType::uint16: return reduce_as<std::uint16_t>(op, inputs);
    case DataType::uint32: return reduce_as<std::uint32_t>(op, inputs);
    case DataType::uint64: return reduce_as<std::uint64_t>(op, inputs);
    case DataType::boolean: return reduce_booleans(op, inputs);
    case DataType::float16:
    case DataType::bfloat16: break;
  }
  return reduce_halves(type, op, inputs);
}

ByteVector with_plain_nans(DataType type, ByteVector data) {
  if (!is_floating(type)) return data;
  for (std::size_t i = 0; i < data.size() / element_bytes(type); ++i) {
    const long double value = element(type, data, i);
    if (std::isnan(value)) set_element(type, data.data(), i, value);
  }
  return data;
}

std::vector<ByteVector> expected_outputs(const engine::ResolvedCall& call, const std::vector<ByteVector>& inputs) {
  return expected_outputs(std::vector<engine::ResolvedCall>(inputs.size(), call), inputs);
}

std::vector<ByteVector> expected_outputs(const std::vector<engine::ResolvedCall>& calls,
                                         const std::vector<ByteVector>& inputs) {
  const engine::ResolvedCall& call = calls[0];
  const int world = static_cast<int>(inputs.size());
  const auto part_of = [&](const ByteVector& all, const engine::ResolvedCall& whose, int rank) {
    const std::size_t size = element_bytes(call.type);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(engine::piece_begin(whose, rank) * size);
    return ByteVector(begin, begin + static_cast<std::ptrdiff_t>(engine::piece_elements(whose, rank) * size));
  };
  const auto root = static_cast<std::size_t>(call.root);
  std::vector<ByteVector> outputs(inputs.size());
  if (call.collective == Collective::barrier) return outputs;
  const ByteVector sum = is_reduction(call.collective)
                             ? reduce_in_rank_order(call.type, call.op, contributions(call, inputs))
                             : ByteVector();
  ByteVector gathered;
  for (int rank = 0; rank < world; ++rank) {
    const ByteVector& input = inputs[static_cast<std::size_t>(rank)];
    const engine::ResolvedCall& own = calls[static_cast<std::size_t>(rank)];
    const std::size_t bytes = engine::input_elements(own, world, rank) * element_bytes(call.type);
    gathered.insert(gathered.end(), input.begin(), input.begin() + static_cast<std::ptrdiff_t>(bytes));
  }
  for (int rank = 0; rank < world; ++rank) {
    ByteVector& output = outputs[static_cast<std::size_t>(rank)];
    switch (call.collective) {
      case Collective::all_reduce: output = sum; break;
      case Collective::reduce: output = rank == call.root ? sum : ByteVector(); break;
      case Collective::reduce_scatter: output = part_of(sum, call, rank); break;
      case Collective::broadcast: output = inputs[root]; break;
      case Collective::all_gather: output = gathered; break;
      case Collective::gather: output = rank == call.root ? gathered : ByteVector(); break;
      case Collective::scatter: output = part_of(inputs[root], call, rank); break;
      case Collective::all_to_all:
        for (std::size_t source = 0; source < inputs.size(); ++source) {
          const ByteVector part = part_of(inputs[source], calls[source], rank);
          output.insert(output.end(), part.begin(), part.end());
        }
        break;
      case Collective::barrier: break;
    }
  }
  return outputs;
}

ByteVector decoded(const engine::ResolvedCall& call, const ByteVector& data) {
  const auto codec = make_codec(call.compression).take_or_throw();
  if (codec == nullptr) return data;
  std::vector<float> values(data.size() / element_bytes(call.type));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(element(call.type, data, i));
  std::vector<std::byte> payload(codec->max_encoded_bytes(values.size()));
  payload.resize(codec->encode(values, payload, {}));
  if (!codec->decode(payload, values).ok()) throw std::logic_error("the codec does not decode what it encoded");
  ByteVector result(data.size());
  for (std::size_t i = 0; i < values.size(); ++i) set_element(call.type, result.data(), i, values[i]);
  return result;
}

std::vector<ByteVector> expected_decoded(const engine::ResolvedCall& call, const std::vector<ByteVector>& inputs) {
  return expected_decoded(std::vector<engine::ResolvedCall>(inputs.size(), call), inputs);
}

std::vector<ByteVector> expected_decoded(const std::vector<engine::ResolvedCall>& calls,
                                         const std::vector<ByteVector>& inputs) {
  const engine::ResolvedCall& call = calls[0];
  if (call.compression.is_none()) return expected_outputs(calls, inputs);
  if (call.collective != Collective::all_to_all) {
    std::vector<ByteVector> seen;
    for (const ByteVector& input : inputs) seen.push_back(decoded(call, input));
    return expected_outputs(calls, seen);
  }
  auto outputs = expected_outputs(calls, inputs);
  for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
    auto begin = outputs[rank].begin();
    for (std::size_t source = 0; source < outputs.size(); ++source) {
      const std::uint64_t elements = engine::piece_elements(calls[source], static_cast<int>(rank));
      const auto end = begin + static_cast<std::ptrdiff_t>(elements * element_bytes(call.type));
      const ByteVector piece = source == rank ? ByteVector(begin, end) : decoded(call, ByteVector(begin, end));
      begin = std::copy(piece.begin(), piece.end(), begin);
    }
  }
  return outputs;
}

}  // namespace qccl::testing
