#include "tools/perf/perf_inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/half.h"

namespace qccl::tools {
namespace {

// Finalizer of MurmurHash3 (32 bit), public domain: every input bit changes every output bit.
constexpr std::uint32_t mix(std::uint32_t h) {
  h ^= h >> 16;
  h *= 0x85EBCA6Bu;
  h ^= h >> 13;
  h *= 0xC2B2AE35u;
  return h ^ (h >> 16);
}

constexpr std::uint32_t hash(std::uint32_t seed, std::uint64_t element) {
  const auto low = static_cast<std::uint32_t>(element);
  const auto high = static_cast<std::uint32_t>(element >> 32);
  return mix(low * 0x9E3779B9u + high * 0x7FEB352Du + seed);
}

// Sets target[i] = make(i-th hash).
template <class T, class Make>
void generate(std::uint32_t seed, std::uint64_t first, std::span<T> target, Make make) {
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = make(hash(seed, first + i));
}

// Converts elements to ones at `target`, which may have any alignment.
template <class T, class Convert>
void store(std::span<const T> source, std::byte* target, Convert convert) {
  for (std::size_t i = 0; i < source.size(); ++i) {
    const auto value = convert(source[i]);
    std::memcpy(target + i * sizeof(value), &value, sizeof(value));
  }
}

// Converts elements at `source`, each a Stored.
template <class Stored, class T, class Convert>
void load(const std::byte* source, std::span<T> target, Convert convert) {
  for (std::size_t i = 0; i < target.size(); ++i) {
    Stored value;
    std::memcpy(&value, source + i * sizeof(value), sizeof(value));
    target[i] = static_cast<T>(convert(value));
  }
}

template <class T>
constexpr auto kTo = [](auto value) { return static_cast<T>(value); };
constexpr auto kHalfToFloat = [](auto value) { return to_float(value); };

// All values are exact in the type.
void store_values(DataType type, std::span<const double> source, std::byte* target) {
  switch (type) {
    case DataType::float32: return store(source, target, kTo<float>);
    case DataType::float64: return store(source, target, kTo<double>);
    case DataType::float16:
      return store(source, target, [](double value) { return to_float16(static_cast<float>(value)); });
    default: return store(source, target, [](double value) { return to_bfloat16(static_cast<float>(value)); });
  }
}

}  // namespace

void store_elements(DataType type, std::span<const std::uint64_t> source, std::byte* target) {
  switch (element_bytes(type)) {
    case 1: return store(source, target, kTo<std::uint8_t>);
    case 2: return store(source, target, kTo<std::uint16_t>);
    case 4: return store(source, target, kTo<std::uint32_t>);
    default: return store(source, target, kTo<std::uint64_t>);
  }
}

int precision_bits(DataType type) {
  switch (type) {
    case DataType::float64: return 53;
    case DataType::float16: return 11;
    case DataType::bfloat16: return 8;
    default: return 24;
  }
}

Inputs::Inputs(const Case& c, bool lossy, std::uint64_t salt) : type_(c.type), op_(c.op), salt_(salt) {
  half_are_false_ = c.type == DataType::boolean && c.is_reduction();
  as_bits_ = !is_floating(c.type) || (!c.is_reduction() && !lossy);
  // 30 bits of a double are more than a float holds, so the check detects a sum in floats.
  const int bits = std::min(precision_bits(c.type), 30);
  const std::uint32_t exact_limit = 1u << bits;  // whole numbers up to here are exact
  const bool multiplies = c.op == ReduceOp::premul_sum;
  const bool adds = c.op == ReduceOp::sum || c.op == ReduceOp::avg || multiplies;
  const std::uint32_t sum_limit = multiplies ? exact_limit / 2 : exact_limit;  // factors are at most 2
  active_ranks_ = adds && !lossy ? std::min(c.world, static_cast<int>(sum_limit)) : c.world;
  largest_ = adds && !lossy ? sum_limit / static_cast<std::uint32_t>(active_ranks_) : exact_limit - 1;
  scale_ = lossy ? std::ldexp(1, -bits) : 1;
}

std::uint32_t Inputs::seed(int rank) const {
  const std::uint32_t low = mix(static_cast<std::uint32_t>(salt_) + 1);
  return mix(low ^ mix(static_cast<std::uint32_t>(rank) * 0x632BE5ABu + static_cast<std::uint32_t>(salt_ >> 32)));
}

void Inputs::elements(int rank, std::uint64_t first, std::span<std::uint64_t> target) const {
  const std::uint32_t start = seed(rank);
  if (element_bytes(type_) == 8) {
    return generate(start, first, target,
                    [](std::uint32_t h) { return static_cast<std::uint64_t>(h) << 32 | mix(h + 1); });
  }
  const auto unused = static_cast<int>(32 - 8 * element_bytes(type_));
  if (is_signed_integer(type_)) {
    return generate(start, first, target, [unused](std::uint32_t h) {
      return static_cast<std::uint64_t>(static_cast<std::int32_t>(h << unused) >> unused);
    });
  }
  if (half_are_false_) {
    return generate(start, first, target,
                    [](std::uint32_t h) { return (h >> 8 & 1) == 0 ? 0 : std::uint64_t{h & 255}; });
  }
  generate(start, first, target,
           [unused](std::uint32_t h) { return static_cast<std::uint64_t>(h << unused >> unused); });
}

void Inputs::values(int rank, std::uint64_t first, std::span<double> target) const {
  op_ == ReduceOp::prod ? powers(rank, first, target) : whole_numbers(rank, first, target);
}

void Inputs::contributions(int rank, std::uint64_t first, std::span<double> target) const {
  values(rank, first, target);
  if (op_ != ReduceOp::premul_sum) return;
  for (double& value : target) value *= premul_factor_of(rank);
}

void Inputs::whole_numbers(int rank, std::uint64_t first, std::span<double> target) const {
  if (rank >= active_ranks_) return std::fill(target.begin(), target.end(), 0.0);
  const auto span = static_cast<std::uint64_t>(2) * largest_ + 1;
  const auto lowest = static_cast<std::int64_t>(largest_);
  const double scale = scale_;
  generate(seed(rank), first, target, [=](std::uint32_t h) {
    return static_cast<double>(static_cast<std::int32_t>(static_cast<std::int64_t>(h * span >> 32) - lowest)) * scale;
  });
}

void Inputs::powers(int rank, std::uint64_t first, std::span<double> target) const {
  const bool one_only = rank >= 8;  // 2^8 and 2^-8 fit every type
  generate(seed(rank), first, target, [one_only](std::uint32_t h) {
    constexpr double kMagnitudes[] = {0.5, 1, 1, 2};
    const double magnitude = one_only ? 1 : kMagnitudes[h >> 1 & 3];
    return (h & 1) != 0 ? -magnitude : magnitude;
  });
}

void Inputs::write(int rank, std::uint64_t first, std::uint64_t count, std::byte* target) const {
  std::array<std::uint64_t, kInputBlock> bits;
  std::array<double, kInputBlock> numbers;
  for (std::uint64_t done = 0; done < count; done += kInputBlock) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(kInputBlock, count - done));
    std::byte* at = target + done * element_bytes(type_);
    if (as_bits_) {
      elements(rank, first + done, {bits.data(), n});
      store_elements(type_, {bits.data(), n}, at);
    } else {
      values(rank, first + done, {numbers.data(), n});
      store_values(type_, {numbers.data(), n}, at);
    }
  }
}

void load_values(DataType type, const std::byte* source, std::span<double> target) {
  switch (type) {
    case DataType::float32: return load<float>(source, target, kTo<double>);
    case DataType::float64: return load<double>(source, target, kTo<double>);
    case DataType::float16: return load<float16>(source, target, kHalfToFloat);
    default: return load<bfloat16>(source, target, kHalfToFloat);
  }
}

}  // namespace qccl::tools
