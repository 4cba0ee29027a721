#include "support/test_data.h"

#include <cmath>
#include <limits>

namespace qccl::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double huge_value(DataType type) {
  switch (type) {
    case DataType::float16: return 6e4;
    case DataType::float64: return 1.5e308;
    default: return 3e38;
  }
}

// Only float64 has a smallest positive value far below 1e-40.
double subnormal_value(DataType type) {
  switch (type) {
    case DataType::float16: return 3e-7;
    case DataType::float64: return 1e-310;
    default: return 1e-40;
  }
}

double draw(Pattern pattern, DataType type, Random& random) {
  switch (pattern) {
    case Pattern::normal:
    case Pattern::with_nan:
    case Pattern::with_inf:
    case Pattern::opposed_inf: return random.normal();
    case Pattern::huge: return (random.below(2) == 0 ? -1 : 1) * huge_value(type) * random.uniform(0.9, 1.0);
    case Pattern::tiny: return 1e-9 * random.normal();
    case Pattern::subnormal: return subnormal_value(type) * random.normal();
    case Pattern::negative: return -1 - random.uniform();
    case Pattern::constant: return 0.3;
    case Pattern::outlier: return 1e-3 * random.normal();
    case Pattern::minus_zero: return -0.0;
    case Pattern::zeros: return random.below(2) == 0 ? -0.0 : 0.0;
    case Pattern::whole: return static_cast<double>(random.below(5)) - 2;
    case Pattern::ladder: return std::ldexp(random.normal(), static_cast<int>(random.below(29)) - 24);
  }
  return 0;
}

// Writes the special value of a pattern at one place.
void mark(Pattern pattern, DataType type, std::vector<ByteVector>& inputs, std::uint64_t count, Random& random) {
  if (count == 0) return;
  const std::uint64_t at = random.below(count);
  const std::size_t rank = random.below(inputs.size());
  std::byte* victim = inputs[rank].data();
  if (pattern == Pattern::with_nan) set_element(type, victim, at, std::numeric_limits<double>::quiet_NaN());
  if (pattern == Pattern::with_inf) set_element(type, victim, at, random.below(2) == 0 ? kInfinity : -kInfinity);
  if (pattern == Pattern::outlier) set_element(type, victim, at, type == DataType::float16 ? 1e4 : 1e6);
  if (pattern == Pattern::opposed_inf) {
    set_element(type, victim, at, kInfinity);
    set_element(type, inputs[(rank + 1) % inputs.size()].data(), at, -kInfinity);
  }
}

}  // namespace

const char* to_string(Pattern pattern) {
  switch (pattern) {
    case Pattern::normal: return "normal";
    case Pattern::huge: return "huge";
    case Pattern::tiny: return "tiny";
    case Pattern::subnormal: return "subnormal";
    case Pattern::with_nan: return "with_nan";
    case Pattern::with_inf: return "with_inf";
    case Pattern::opposed_inf: return "opposed_inf";
    case Pattern::negative: return "negative";
    case Pattern::constant: return "constant";
    case Pattern::outlier: return "outlier";
    case Pattern::minus_zero: return "minus_zero";
    case Pattern::zeros: return "zeros";
    case Pattern::ladder: return "ladder";
    case Pattern::whole: return "whole";
  }
  return "?";
}

std::vector<ByteVector> make_inputs(Pattern pattern, DataType type, std::uint64_t count, int world,
                                    std::uint64_t seed) {
  Random random(seed);
  std::vector<ByteVector> inputs(static_cast<std::size_t>(world));
  for (ByteVector& input : inputs) {
    input.resize(count * element_bytes(type));
    if (!is_floating(type)) {
      for (std::byte& byte : input) byte = static_cast<std::byte>(random.next() >> 56);
      // Half of the booleans are false, the others any byte.
      for (std::byte& byte : input) byte = type == DataType::boolean && random.below(2) == 0 ? std::byte{0} : byte;
      continue;
    }
    for (std::uint64_t i = 0; i < count; ++i) set_element(type, input.data(), i, draw(pattern, type, random));
  }
  if (is_floating(type)) mark(pattern, type, inputs, count, random);
  return inputs;
}

}  // namespace qccl::testing
