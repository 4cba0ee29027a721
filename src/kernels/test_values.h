// For tests: floats that break quantizers, by name.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace qccl::kernels {

using Random = std::mt19937;

struct ValueFamily {
  std::string name;
  // The value at `index` of an array.
  std::function<float(Random& random, std::size_t index)> draw;

  std::vector<float> values(std::size_t count, std::uint32_t seed) const {
    Random random(seed);
    std::vector<float> result(count);
    for (std::size_t i = 0; i < count; ++i) result[i] = draw(random, i);
    return result;
  }
};

inline float uniform(Random& random, float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(random);
}

inline std::vector<ValueFamily> finite_families() {
  return {
      {"normal", [](Random& r, std::size_t) { return std::normal_distribution<float>()(r); }},
      {"all negative", [](Random& r, std::size_t) { return uniform(r, -3.0f, -1.0f); }},
      {"constant", [](Random&, std::size_t) { return 0.1f; }},
      {"constant and huge", [](Random&, std::size_t) { return -3e38f; }},
      {"zeros of both signs", [](Random& r, std::size_t) { return r() % 2 == 0 ? 0.0f : -0.0f; }},
      {"zeros and ones", [](Random& r, std::size_t) { return r() % 3 == 0 ? -0.0f : static_cast<float>(r() % 2); }},
      {"one outlier", [](Random& r, std::size_t i) { return i % 97 == 5 ? 1e6f : uniform(r, -1e-3f, 1e-3f); }},
      {"about 1e-9", [](Random& r, std::size_t) { return uniform(r, -1e-9f, 1e-9f); }},
      {"about 1e-40", [](Random& r, std::size_t) { return std::ldexp(uniform(r, -1.0f, 1.0f), -133); }},
      {"about 3e38", [](Random& r, std::size_t) { return r() % 2 == 0 ? 3e38f : -3e38f + uniform(r, 0.0f, 1e37f); }},
      {"largest and smallest",
       [](Random& r, std::size_t) { return (r() % 2 == 0 ? 1.0f : -1.0f) * std::numeric_limits<float>::max(); }},
      {"narrow range far from zero",
       [](Random& r, std::size_t) { return 1e6f + 0.0625f * static_cast<float>(r() % 9); }},
      {"two neighbours", [](Random& r, std::size_t) { return 1e6f + 0.0625f * static_cast<float>(r() % 2); }},
      {"narrow range near 2^126",
       [](Random& r, std::size_t) { return 0x1p126f + 0x1p103f * static_cast<float>(r() % 9); }},
      {"all scales",
       [](Random& r, std::size_t) { return std::ldexp(uniform(r, -1.0f, 1.0f), static_cast<int>(r() % 270) - 142); }},
      {"steps and half steps", [](Random& r, std::size_t) { return 0.5f * static_cast<float>(r() % 511); }},
  };
}

inline std::vector<ValueFamily> families_with_nonfinite() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<ValueFamily> families = finite_families();
  families.push_back({"some NaN", [](Random& r, std::size_t) {
                        return r() % 50 == 0 ? std::nanf("7") * (r() % 2 == 0 ? 1.0f : -1.0f) : uniform(r, -1.0f, 1.0f);
                      }});
  families.push_back(
      {"some +inf", [](Random& r, std::size_t) { return r() % 50 == 0 ? kInfinity : uniform(r, -1.0f, 1.0f); }});
  families.push_back({"infinities of both signs", [](Random& r, std::size_t) {
                        return r() % 50 == 0 ? (r() % 2 == 0 ? kInfinity : -kInfinity) : uniform(r, -1.0f, 1.0f);
                      }});
  families.push_back({"NaN of several kinds and infinities", [](Random& r, std::size_t) {
                        const std::uint32_t bits = 0x7F800000u | (r() % 2 << 31) | (r() % 3 << 21) | r() % 2;
                        return r() % 20 == 0 ? std::bit_cast<float>(bits) : uniform(r, -1.0f, 1.0f);
                      }});
  return families;
}

}  // namespace qccl::kernels
