// Element types, reduction operations and the other enumerations of the public API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

namespace qccl {

// Storage of a 16-bit float. The library does the arithmetic; this type has none.
struct float16 {
  std::uint16_t bits;  // as IEEE 754 and bfloat16 lay them out
};
struct bfloat16 {
  std::uint16_t bits;
};

// boolean is a byte: any value but 0 is true, results are 0 or 1.
enum class DataType : std::uint8_t {
  float32,
  float64,
  float16,
  bfloat16,
  int32,
  int64,
  uint8,
  int8,
  int16,
  uint16,
  uint32,
  uint64,
  boolean
};

// Integers wrap around. For booleans sum and max are or, prod and min are and. supports() says which types allow which
// operations.
enum class ReduceOp : std::uint8_t {
  sum,
  avg,  // the fp32 sum divided by the group's size
  min,  // NaN wins over every number, and -0 < +0
  max,  // as min
  prod,
  bit_and,
  bit_or,
  bit_xor,
  premul_sum,  // each rank's input times its CallOptions::premul_factor: computed in fp32 (float64: in double), rounded
               // to the type, then added
};

// The operations of a whole group.
enum class Collective : std::uint8_t {
  all_reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  barrier,
  reduce,
  gather,
  scatter,
  all_to_all
};

// All of them, in the order shown to users.
inline constexpr Collective kEveryCollective[] = {
    Collective::all_reduce,     Collective::reduce,     Collective::broadcast,
    Collective::reduce_scatter, Collective::all_gather, Collective::gather,
    Collective::scatter,        Collective::all_to_all, Collective::barrier};

// It adds, or reduces by another operation.
constexpr bool is_reduction(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}
// One rank, the root, is the only source or the only destination.
constexpr bool is_rooted(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter;
}
// Input, or output, has a piece for each rank, which has a count of its own in the v forms.
constexpr bool has_input_pieces(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::scatter ||
         collective == Collective::all_to_all;
}
constexpr bool has_output_pieces(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::gather ||
         collective == Collective::all_to_all;
}
constexpr bool has_pieces(Collective collective) {
  return has_input_pieces(collective) || has_output_pieces(collective);
}
// A call may choose a compression.
constexpr bool is_compressible(Collective collective) {
  return is_reduction(collective) || collective == Collective::all_gather || collective == Collective::all_to_all ||
         collective == Collective::broadcast;
}
// nccl-tests' bus bandwidth over its algorithm bandwidth: what the busiest line carries of a rank's larger buffer.
constexpr double bus_factor(Collective collective, int ranks) {
  const double others = ranks > 1 ? (ranks - 1.0) / ranks : 0;
  if (collective == Collective::all_reduce) return 2 * others;
  return has_pieces(collective) ? others : 1;
}

// How data travels between the ranks. Compressed ring, tree and binomial sums are rounded at every hop; see
// tools/perf/perf_bound.h. The library may have algorithms without an enumerator: algorithm_named() finds them.
enum class Algorithm : std::uint8_t {
  automatic,           // the one that is predicted to be the fastest
  one_shot,            // every rank sends directly to all destinations at once
  sra,                 // scatter-reduce, then gather
  ring,                // from neighbour to neighbour
  tree,                // two binary trees, half the data each
  binomial,            // a tree from or to the root
  pairwise,            // one receiver after another; an all_reduce is sra whose inputs leave so
  hierarchical,        // uncompressed inside each host; between hosts each element once per host
  recursive_doubling,  // all ranks swap partial sums, log2(world) times; compressed it is one_shot
};

// As the rank to receive from: the message that arrives first, from any rank.
inline constexpr int kAnySource = -1;

// What carries the data.
enum class TransportChoice : std::uint8_t {
  automatic,  // shared memory between ranks of one host, TCP between hosts
  shm,        // shared memory only
  tcp,        // TCP only
};

// Bytes of an element.
constexpr std::size_t element_bytes(DataType type) {
  switch (type) {
    case DataType::float64:
    case DataType::int64:
    case DataType::uint64: return 8;
    case DataType::float32:
    case DataType::int32:
    case DataType::uint32: return 4;
    case DataType::float16:
    case DataType::bfloat16:
    case DataType::int16:
    case DataType::uint16: return 2;
    case DataType::int8:
    case DataType::uint8:
    case DataType::boolean: return 1;
  }
  return 0;
}

// Of 16, 32 or 64 bits.
constexpr bool is_floating(DataType type) {
  return type == DataType::float32 || type == DataType::float64 || type == DataType::float16 ||
         type == DataType::bfloat16;
}

// avg and premul_sum are for floating types, bitwise operations for integers and booleans, the rest for all.
constexpr bool supports(DataType type, ReduceOp op) {
  switch (op) {
    case ReduceOp::avg:
    case ReduceOp::premul_sum: return is_floating(type);
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
    case ReduceOp::bit_xor: return !is_floating(type);
    default: return true;
  }
}

// Sums of any kind, which codecs can compress: they lose little of each.
constexpr bool is_sum(ReduceOp op) { return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum; }

// A codec can compress elements of this type.
constexpr bool is_compressible(DataType type) {
  return type == DataType::float32 || type == DataType::float16 || type == DataType::bfloat16;
}

// Names as users write them: "float32", "bool", "sum", "band", "premul_sum", "all_reduce", "sra".
std::string_view to_string(DataType type);
std::string_view to_string(ReduceOp op);
std::string_view to_string(Collective collective);
std::string_view to_string(Algorithm algorithm);

// Every algorithm that can be requested by name, in the order shown to users.
std::vector<Algorithm> every_algorithm();
// The algorithm of this name, "auto" included; empty if there is none.
std::optional<Algorithm> algorithm_named(std::string_view name);

namespace internal {
template <class T>
constexpr DataType integer_type() {
  constexpr bool kSigned = std::is_signed_v<T>;
  if constexpr (sizeof(T) == 1) return kSigned ? DataType::int8 : DataType::uint8;
  if constexpr (sizeof(T) == 2) return kSigned ? DataType::int16 : DataType::uint16;
  if constexpr (sizeof(T) == 4) return kSigned ? DataType::int32 : DataType::uint32;
  return kSigned ? DataType::int64 : DataType::uint64;
}
}  // namespace internal

// True for bool, every integer up to 64 bits, float, double, float16 and bfloat16.
template <class T>
inline constexpr bool has_data_type =
    (std::is_integral_v<T> && sizeof(T) <= 8) || std::is_same_v<std::remove_cv_t<T>, float> ||
    std::is_same_v<std::remove_cv_t<T>, double> || std::is_same_v<std::remove_cv_t<T>, float16> ||
    std::is_same_v<std::remove_cv_t<T>, bfloat16>;

// DataType of a C++ element type that has one.
template <class T>
constexpr DataType data_type_of() {
  static_assert(has_data_type<T>, "QCCL has no data type for this element type");
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>) return DataType::float32;
  if constexpr (std::is_same_v<U, double>) return DataType::float64;
  if constexpr (std::is_same_v<U, float16>) return DataType::float16;
  if constexpr (std::is_same_v<U, bfloat16>) return DataType::bfloat16;
  if constexpr (std::is_same_v<U, bool>) return DataType::boolean;
  return internal::integer_type<U>();
}

// `count` elements for collectives that only move data and need no DataType: elements of any other trivially copyable T
// are sent as bytes.
struct Moved {
  DataType type;
  std::size_t count;  // elements of that type
};
// What to pass for `count` elements of T.
template <class T>
constexpr Moved moved(std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T>, "only trivially copyable elements can be sent");
  if constexpr (has_data_type<T>) {
    return {data_type_of<T>(), count};
  } else {
    return {DataType::uint8, count * sizeof(T)};
  }
}

}  // namespace qccl
