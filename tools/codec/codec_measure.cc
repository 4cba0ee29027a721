#include "tools/codec/codec_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/options.h"
#include "codec/geometry.h"
#include "tools/command_line.h"

namespace qccl::tools {
namespace {

constexpr std::size_t kLeastPairs = 5;
constexpr double kBatchSeconds = 500e-6;

std::size_t slice_of(const Codec& codec) {
  return static_cast<std::size_t>(slice_elements(&codec, DataType::float32, kDefaultSliceBytes));
}

RandomStream random_of_input() { return {.key = random_key(1, 0, RandomPhase::input)}; }

BlockSummary summary_of(std::span<const float> values) {
  BlockSummary block{HUGE_VAL, -HUGE_VAL, 0, values.size()};
  double squares = 0;
  for (const float value : values) {
    block.minimum = std::min<double>(block.minimum, value);
    block.maximum = std::max<double>(block.maximum, value);
    squares += static_cast<double>(value) * value;
  }
  block.norm = std::sqrt(squares) * (1 + 1e-9);
  return block;
}

bool is_within_bound(const Codec& codec, std::span<const float> values, std::span<const float> decoded) {
  const std::size_t bucket = codec.bucket_size();
  for (std::size_t begin = 0; begin < values.size(); begin += bucket) {
    const std::size_t size = std::min(bucket, values.size() - begin);
    const double bound = codec.error_bound(summary_of(values.subspan(begin, size)));
    for (std::size_t i = begin; i < begin + size; ++i) {
      const double error = std::fabs(static_cast<double>(decoded[i]) - static_cast<double>(values[i]));
      if (!(error <= bound)) return false;
    }
  }
  return true;
}

// Encoded slices, one after the other in one buffer.
struct EncodedSlices {
  explicit EncodedSlices(const Codec& used, std::span<const float> values)
      : codec(used), source(values), slice(slice_of(used)), stride(used.max_encoded_bytes(slice)) {
    const std::size_t count = (values.size() + slice - 1) / slice;
    bytes.resize(count * stride);
    sizes.resize(count);
  }

  std::span<const float> part(std::size_t index) const {
    return source.subspan(index * slice, std::min(slice, source.size() - index * slice));
  }
  void encode(RandomStream random = random_of_input()) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      random.first_element = i * slice;
      sizes[i] = codec.encode(part(i), Bytes(&bytes[i * stride], stride), random);
    }
  }
  void decode(std::span<float> target) const {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      codec.decode(encoded(i), target.subspan(i * slice, part(i).size())).take_or_throw();
    }
  }
  void decode_add(std::span<const float> addend, std::span<float> target) const {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::size_t size = part(i).size();
      codec.decode_add(encoded(i), addend.subspan(i * slice, size), target.subspan(i * slice, size)).take_or_throw();
    }
  }
  double total_bytes() const {
    double bytes_of_all = 0;
    for (const std::size_t size : sizes) bytes_of_all += static_cast<double>(size);
    return bytes_of_all;
  }
  ConstBytes encoded(std::size_t index) const { return {&bytes[index * stride], sizes[index]}; }

  const Codec& codec;
  const std::span<const float> source;
  const std::size_t slice;
  const std::size_t stride;
  std::vector<std::byte> bytes;
  std::vector<std::size_t> sizes;
};

// Floats at a multiple of 64 bytes, where tensors begin.
class TensorMemory {
 public:
  explicit TensorMemory(std::size_t elements) : memory_(elements + 64 / sizeof(float)), elements_(elements) {}
  std::span<float> values() {
    void* begin = memory_.data();
    std::size_t room = memory_.size() * sizeof(float);
    return {static_cast<float*>(std::align(64, elements_ * sizeof(float), begin, room)), elements_};
  }

 private:
  std::vector<float> memory_;
  const std::size_t elements_;
};

double seconds_of(const std::function<void()>& work, int times) {
  const SteadyClock clock;
  const TimePoint begin = clock.now();
  for (int i = 0; i < times; ++i) {
    work();
    asm volatile("" ::: "memory");  // keeps the compiler from dropping the writes
  }
  return std::chrono::duration<double>(clock.now() - begin).count() / times;
}

// Times `work`, which handles this many gigabytes, alternating with a copy of them.
Rate time_against(const std::function<void()>& work, const std::function<void()>& copy, double gigabytes,
                  double seconds) {
  const auto batch = [](double one) { return std::clamp(static_cast<int>(kBatchSeconds / one), 1, 1000); };
  const int works = batch(seconds_of(work, 1)), copies = batch(seconds_of(copy, 1));
  std::vector<double> times, ratios;
  const SteadyClock clock;
  const TimePoint end = clock.now() + std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(seconds));
  while (times.size() < kLeastPairs || clock.now() < end) {
    const double copied = seconds_of(copy, copies);
    times.push_back(seconds_of(work, works));
    ratios.push_back(copied / times.back());
  }
  return {gigabytes / median(times), median(ratios)};
}

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

// All but bits and the bound.
template <class Value>
void set_errors(Distortion& result, std::span<const Value> values, std::span<const float> decoded) {
  double errors = 0, squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    const double error = static_cast<double>(decoded[i]) - value;
    errors += error * error;
    squares += value * value;
    result.max_error = std::max(result.max_error, std::fabs(error));
  }
  result.nmse = squares > 0 ? errors / squares : 0;
  result.max_error = squares > 0 ? result.max_error / std::sqrt(squares / static_cast<double>(values.size())) : 0;
}

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

// ---- Data

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

// ---- Measurements

Distortion measure_distortion(const Codec* codec, std::span<const float> values) {
  Distortion result{.bits = 32};
  if (codec == nullptr) return result;
  EncodedSlices slices(*codec, values);
  slices.encode();
  std::vector<float> decoded(values.size());
  slices.decode(decoded);
  result.bits = 8 * slices.total_bytes() / static_cast<double>(values.size());
  set_errors<float>(result, values, decoded);
  result.within_bound = is_within_bound(*codec, values, decoded);
  return result;
}

Distortion measure_sum_distortion(const Codec* codec, std::span<const float> values, int hops) {
  Distortion result{.bits = 32};
  if (codec == nullptr) return result;
  Random random(1);
  std::vector<double> exact(values.size());
  std::vector<float> own(values.size()), partial(values.size());
  const auto draw_own = [&] {
    for (std::size_t i = 0; i < values.size(); ++i) {
      own[i] = random.uniform() < 0.5 ? values[i] : -values[i];
      exact[i] += own[i];
    }
  };
  draw_own();
  partial = own;
  EncodedSlices slices(*codec, partial);
  double bytes = 0;
  for (int hop = 0; hop < hops; ++hop) {
    slices.encode({.key = random_key(1, 0, RandomPhase::hop),
                   .rank = static_cast<std::uint32_t>(hop),
                   .world = static_cast<std::uint32_t>(hops)});
    bytes += slices.total_bytes();
    draw_own();
    slices.decode_add(own, partial);
  }
  result.bits = 8 * bytes / static_cast<double>(values.size()) / hops;
  set_errors<double>(result, exact, partial);
  return result;
}

Speed measure_speed(const Codec& codec, std::span<const float> values, double seconds, std::size_t most) {
  const std::size_t slice = std::min(slice_of(codec), values.size());
  const std::size_t elements = std::min(values.size(), std::max<std::size_t>(most / slice, 1) * slice);
  TensorMemory source_memory(elements), target_memory(elements), copy_memory(elements);
  const auto source = source_memory.values(), target = target_memory.values(), copied = copy_memory.values();
  std::copy_n(values.begin(), elements, source.begin());
  EncodedSlices slices(codec, source);
  slices.encode();
  const auto copy = [&] { std::memcpy(copied.data(), source.data(), elements * sizeof(float)); };
  const double gigabytes = static_cast<double>(elements * sizeof(float)) / 1e9;
  const auto measure = [&](const auto& work) { return time_against(work, copy, gigabytes, seconds); };
  return {.encode = measure([&] { slices.encode(); }),
          .decode = measure([&] { slices.decode(target); }),
          .decode_add = measure([&] { slices.decode_add(source, target); })};
}

}  // namespace qccl::tools
