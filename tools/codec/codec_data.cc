#include "tools/codec/codec_data.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace qccl::tools {
namespace {

// splitmix64. The standard library's distributions differ between implementations.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  // In (0, 1].
  double uniform() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return static_cast<double>(((z ^ (z >> 31)) >> 11) + 1) * 0x1p-53;
  }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * M_PI * uniform()); }
  double laplace() {
    const double u = uniform();
    return uniform() < 0.5 ? std::log(u) : -std::log(u);
  }
  double student3() {
    double squares = 0;
    const double z = normal();
    for (int i = 0; i < 3; ++i) squares += std::pow(normal(), 2);
    return z / std::sqrt(squares / 3);
  }
  double with_outliers() { return normal() * (uniform() < 0.01 ? 30 : 1); }

 private:
  std::uint64_t state_;
};

using Sampler = double (Random::*)();

struct Distribution {
  std::string_view name;
  Sampler draw;
};
constexpr Distribution kDistributions[] = {{"gauss", &Random::normal},
                                           {"laplace", &Random::laplace},
                                           {"t3", &Random::student3},
                                           {"outliers", &Random::with_outliers}};

Failure unreadable(const std::string& path, const std::string& why) {
  return Failure(ErrorKind::invalid_argument, fmt::format("{}: {}", path, why));
}

}  // namespace

const std::vector<std::string_view>& synthetic_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const Distribution& distribution : kDistributions) all.push_back(distribution.name);
    return all;
  }();
  return names;
}

DataSet synthetic_data(std::string_view name, std::size_t count, std::uint64_t seed) {
  DataSet data{std::string(name), std::vector<float>(count)};
  for (const Distribution& distribution : kDistributions) {
    if (distribution.name != name) continue;
    Random random(seed);
    for (float& value : data.values) value = static_cast<float>((random.*distribution.draw)());
  }
  return data;
}

Result<DataSet> read_data(const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) return unreadable(path, error.message());
  if (bytes == 0 || bytes % sizeof(float) != 0) return unreadable(path, fmt::format("{} bytes are no floats", bytes));
  DataSet data{std::filesystem::path(path).filename().string(), std::vector<float>(bytes / sizeof(float))};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(data.values.data()), static_cast<std::streamsize>(bytes))) {
    return unreadable(path, "can't be read");
  }
  for (std::size_t i = 0; i < data.values.size(); ++i) {
    if (!std::isfinite(data.values[i])) return unreadable(path, fmt::format("element {} is {}", i, data.values[i]));
  }
  return data;
}

}  // namespace qccl::tools
