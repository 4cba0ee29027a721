// Element types, reduction operations and the other enumerations of the public API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace qccl {

// Storage of a 16-bit float. Arithmetic is the library's business, not this type's.
struct float16 {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};

enum class DataType : std::uint8_t { float32, float64, float16, bfloat16, int32, int64, uint8 };

// avg is the fp32 sum divided by the group's size, for floating types only.
// min and max: NaN wins over every number, and -0 < +0.
enum class ReduceOp : std::uint8_t { sum, avg, min, max, prod };

enum class Collective : std::uint8_t { all_reduce, broadcast, all_gather, reduce_scatter, barrier };

// one_shot: every rank sends all it has to every rank. sra: scatter-reduce, then all-gather.
enum class Algorithm : std::uint8_t { automatic, one_shot, sra };

// In place of the rank to receive from: whoever's message comes first.
inline constexpr int kAnySource = -1;

// automatic: shared memory between ranks of one host, TCP between hosts.
enum class TransportChoice : std::uint8_t { automatic, shm, tcp };

constexpr std::size_t element_bytes(DataType type) {
  switch (type) {
    case DataType::float32:
    case DataType::int32: return 4;
    case DataType::float64:
    case DataType::int64: return 8;
    case DataType::float16:
    case DataType::bfloat16: return 2;
    case DataType::uint8: return 1;
  }
  return 0;
}

constexpr bool is_floating(DataType type) {
  return type == DataType::float32 || type == DataType::float64 || type == DataType::float16 ||
         type == DataType::bfloat16;
}

// Names as users write them: "float32", "sum", "all_reduce", "sra", "shm".
std::string_view to_string(DataType type);
std::string_view to_string(ReduceOp op);
std::string_view to_string(Collective collective);
std::string_view to_string(Algorithm algorithm);

// DataType of a C++ element type; only the listed types have one.
template <class T>
constexpr DataType data_type_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>)
    return DataType::float32;
  else if constexpr (std::is_same_v<U, double>)
    return DataType::float64;
  else if constexpr (std::is_same_v<U, float16>)
    return DataType::float16;
  else if constexpr (std::is_same_v<U, bfloat16>)
    return DataType::bfloat16;
  else if constexpr (std::is_same_v<U, std::int32_t>)
    return DataType::int32;
  else if constexpr (std::is_same_v<U, std::int64_t>)
    return DataType::int64;
  else {
    static_assert(std::is_same_v<U, std::uint8_t>, "QCCL has no data type for this element type");
    return DataType::uint8;
  }
}

}  // namespace qccl
