// The kernels' contract, and the errors that h4_reference.h states: for single blocks, in the mean, and for blocks far
// from normally distributed.
#include "kernels/h4/h4.h"

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/codec_kernel_contract.h"
#include "kernels/h4/h4_reference.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

// Blocks of few nonzero elements, of one magnitude, and with heavy tails.
std::vector<ValueFamily> structured_families() {
  const auto hot = [](std::size_t every) {
    return [every](Random& r, std::size_t) { return r() % every == 0 ? (r() % 2 == 0 ? 1.0f : -1.0f) : 0.0f; };
  };
  return {{"about 2 of 256 hot", hot(128)},
          {"about 16 of 256 hot", hot(16)},
          {"about 64 of 256 hot", hot(4)},
          {"one hot", [](Random&, std::size_t i) { return i % 256 == 77 ? -3.0f : 0.0f; }},
          {"one magnitude", [](Random& r, std::size_t) { return r() % 2 == 0 ? 0.75f : -0.75f; }},
          {"heavy tails", [](Random& r, std::size_t) { return std::student_t_distribution<float>(2)(r); }}};
}

struct H4Kernel : FixedSizeKernel<h4_encoded_bytes, h4_decode> {
  using Format = H4Format;
  static constexpr std::size_t kMostTail = 520;
  static std::vector<std::size_t> counts() { return {256 * 20 + 100}; }

  static std::vector<ValueFamily> families() {
    std::vector<ValueFamily> families = families_with_nonfinite();
    for (ValueFamily& family : structured_families()) families.push_back(std::move(family));
    return families;
  }
  static std::vector<Format> formats() {
    std::vector<Format> formats;
    for (const int bits : {2, 3, 4}) {
      for (const bool unbiased : {true, false}) formats.push_back({bits, unbiased});
    }
    return formats;
  }
  static std::string text(Format format) {
    return std::to_string(format.bits) + (format.unbiased ? " bits, unbiased" : " bits");
  }
  static void encode(Format format, const float* source, std::size_t n, std::byte* target) {
    const H4Signs signs{0x1234567u * static_cast<std::uint32_t>(format.bits),
                        4000000000u + static_cast<std::uint32_t>(n)};
    h4_encode(format, signs, source, n, target);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(H4, CodecKernelContract, H4Kernel);

constexpr std::array kWidths = {2, 3, 4};
constexpr std::size_t kBlocks = 600;

double optimum(int bits) { return reference::h4_codebook(bits).optimum; }

// `hot` elements of a block of 256 are 1 or -1, the others 0.
std::vector<float> hot_blocks(std::size_t hot, std::uint32_t seed) {
  Random random(seed);
  std::vector<float> values(kBlocks * kH4Block, 0.0f);
  for (std::size_t block = 0; block < values.size(); block += kH4Block) {
    for (std::size_t left = hot; left > 0;) {
      float& value = values[block + random() % kH4Block];
      if (value != 0) continue;
      value = random() % 2 == 0 ? 1.0f : -1.0f;
      --left;
    }
  }
  return values;
}

struct Data {
  std::string name;
  std::vector<float> values;
  bool dense = false;
};

std::vector<Data> drawn(std::vector<ValueFamily> families) {
  std::vector<Data> data;
  for (const ValueFamily& family : families) data.push_back({family.name, family.values(kBlocks * kH4Block, 5)});
  return data;
}

float laplace(Random& r) { return std::exponential_distribution<float>(1)(r) * (r() % 2 == 0 ? 1.0f : -1.0f); }

std::vector<Data> dense_data() {
  std::vector<Data> data =
      drawn({{"Gauss", [](Random& r, std::size_t) { return std::normal_distribution<float>()(r); }},
             {"Laplace", [](Random& r, std::size_t) { return laplace(r); }},
             {"t3", [](Random& r, std::size_t) { return std::student_t_distribution<float>(3)(r); }},
             {"constant", [](Random&, std::size_t) { return 0.3f; }}});
  for (Data& one : data) one.dense = true;
  return data;
}

std::vector<Data> all_data() {
  std::vector<Data> data = dense_data();
  for (const std::size_t hot : {1u, 2u, 3u, 4u, 5u, 8u, 16u, 32u, 64u, 128u, 256u}) {
    data.push_back({std::to_string(hot) + " hot", hot_blocks(hot, 6)});
  }
  for (Data& more : drawn({{"alternating", [](Random&, std::size_t i) { return i % 2 == 0 ? 1.0f : -1.0f; }},
                           {"ramp", [](Random&, std::size_t i) { return static_cast<float>(i % 256); }},
                           {"two sizes", [](Random&r, std::size_t) { return r() % 2 == 0 ? 1.0f : 0.1f; }},
                           {"one large", [](Random&r, std::size_t i) {
                              return i % 256 == 9 ? 100.0f : std::normal_distribution<float>()(r);
                            }}})) {
    data.push_back(std::move(more));
  }
  return data;
}

struct Coded {
  std::vector<std::byte> bytes;
  std::vector<float> values;

  bool twice(std::size_t block) const {
    return (std::to_integer<unsigned>(bytes[kH4SliceHeaderBytes + kH4ScaleBytes * block + 1]) & 0x80u) != 0;
  }
  float scale(std::size_t block) const {
    std::uint16_t bits = 0;
    std::memcpy(&bits, &bytes[kH4SliceHeaderBytes + kH4ScaleBytes * block], sizeof(bits));
    return std::fabs(reference::h4_scale(bits).scale);
  }
};

Coded coded(H4Format format, std::uint32_t seed, const std::vector<float>& values) {
  Coded result{std::vector<std::byte>(h4_encoded_bytes(format, values.size())), std::vector<float>(values.size())};
  h4_encode(format, {seed, 0}, values.data(), values.size(), result.bytes.data());
  h4_decode(format, result.bytes.data(), nullptr, result.values.data(), values.size());
  return result;
}

// Sums over `count` elements.
struct Energies {
  double input = 0, error = 0, product = 0;
  Energies(const float* x, const float* y, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const double a = x[i], b = y[i];
      input += a * a;
      error += (a - b) * (a - b);
      product += a * b;
    }
  }
};

double mean_error(H4Format format, std::uint32_t seed, const std::vector<float>& x) {
  const Energies e(x.data(), coded(format, seed, x).values.data(), x.size());
  return e.error / e.input;
}

TEST(H4Accuracy, the_transform_keeps_norms_and_is_its_own_inverse) {
  for (const Data& data : all_data()) {
    std::vector<double> x(data.values.begin(), data.values.begin() + kH4Block);
    std::vector<double> z = x;
    const auto norm = [](const std::vector<double>& v) {
      double sum = 0;
      for (const double a : v) sum += a * a;
      return std::sqrt(sum);
    };
    reference::h4_transform(z.data());
    EXPECT_NEAR(norm(z) / 16 / norm(x), 1, 1e-12) << data.name;
    reference::h4_transform(z.data());
    for (std::size_t i = 0; i < kH4Block; ++i) ASSERT_NEAR(z[i] / 256, x[i], 1e-12 * norm(x)) << data.name;
  }
}

// The mean over seeds: each seed has 32 sequences of signs for all blocks, and these blocks have much in common. Dense
// blocks need one transform only.
TEST(H4Accuracy, any_data_has_the_error_of_normal_data) {
  constexpr std::uint32_t kSeeds = 8;
  for (const Data& data : all_data()) {
    for (const int bits : kWidths) {
      double least = 0, unbiased = 0;
      for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
        least += mean_error({bits, false}, seed, data.values) / kSeeds;
        unbiased += mean_error({bits, true}, seed, data.values) / kSeeds;
      }
      const double most = (data.dense ? 1.04 : 1.07) * optimum(bits);
      EXPECT_LE(least, most) << data.name << ", bits " << bits;
      EXPECT_LE(unbiased, most / (1 - optimum(bits))) << data.name << ", bits " << bits;
    }
  }
}

// At most 4 % below the optimum, because each block has its own best scale. An upper bound alone would not show that.
TEST(H4Accuracy, normal_data_has_the_error_of_the_codebook) {
  const std::vector<float> x = dense_data()[0].values;
  for (const int bits : kWidths) {
    EXPECT_NEAR(mean_error({bits, false}, 3, x) / optimum(bits), 0.98, 0.02) << bits;
    EXPECT_NEAR(mean_error({bits, true}, 3, x) / (optimum(bits) / (1 - optimum(bits))), 0.98, 0.02) << bits;
  }
}

// For each block by itself, except for the rounding of its values, to about 1 / 127 of their mean, and of its scale.
TEST(H4Accuracy, unbiased_blocks_keep_their_inner_product) {
  for (const Data& data : dense_data()) {
    for (const int bits : kWidths) {
      const Coded y = coded({bits, true}, 5, data.values);
      for (std::size_t block = 0; block < kBlocks; ++block) {
        if (y.twice(block)) continue;
        const Energies e(&data.values[block * kH4Block], &y.values[block * kH4Block], kH4Block);
        ASSERT_NEAR(e.product / e.input, 1, 0x1p-7) << data.name << ", bits " << bits << ", block " << block;
      }
    }
  }
}

// The square error of the mean over many random signs falls as 1 / their number, until 1 % is left.
TEST(H4Accuracy, the_mean_over_signs_is_the_block) {
  constexpr std::uint32_t kSeeds = 256;
  for (const Data& data : all_data()) {
    const std::vector<float> x(data.values.begin(), data.values.begin() + 8 * kH4Block);
    for (const int bits : kWidths) {
      std::vector<double> sum(x.size());
      for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
        const Coded y = coded({bits, true}, seed * 2654435761u + 1, x);
        for (std::size_t i = 0; i < x.size(); ++i) sum[i] += y.values[i];
      }
      double error = 0, energy = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        error += (sum[i] / kSeeds - x[i]) * (sum[i] / kSeeds - x[i]);
        energy += double{x[i]} * x[i];
      }
      const double one = optimum(bits) / (1 - optimum(bits));
      EXPECT_LE(error / energy, one * (1.3 / kSeeds + 0.01)) << data.name << ", bits " << bits;
    }
  }
}

// Checks the bounds of single blocks.
void expect_bounds(const std::string& name, H4Format format, std::uint32_t seed, const std::vector<float>& x) {
  const Coded y = coded(format, seed, x);
  const double loss = 1.5 * optimum(format.bits);
  const double once = std::sqrt(format.unbiased ? loss / (1 - loss) : loss) + 0x1p-7;
  for (std::size_t begin = 0; begin < x.size(); begin += kH4Block) {
    const Energies e(&x[begin], &y.values[begin], std::min(kH4Block, x.size() - begin));
    const double norm = std::sqrt(e.input), error = std::sqrt(e.error);
    const std::size_t block = begin / kH4Block;
    ASSERT_LE(error, norm * (1 + 0x1p-6) + 0x1p-118) << name << ", block " << block;
    if (y.twice(block)) continue;
    const double slack = y.scale(block) < 0x1p-126f ? 0x1p-118 : 0;
    ASSERT_LE(error, norm * once + slack) << name << ", block " << block;
  }
}

TEST(H4Accuracy, every_block_is_within_its_bounds) {
  std::vector<Data> data = all_data();
  for (Data& more : drawn(finite_families())) data.push_back(std::move(more));
  for (const Data& one : data) {
    for (const int bits : kWidths) {
      for (const bool unbiased : {false, true}) expect_bounds(one.name, {bits, unbiased}, 21, one.values);
    }
  }
}

double share_transformed_twice(H4Format format, const std::vector<float>& values) {
  const Coded y = coded(format, 9, values);
  std::size_t twice = 0;
  for (std::size_t block = 0; block < kBlocks; ++block) twice += y.twice(block) ? 1 : 0;
  return static_cast<double>(twice) / kBlocks;
}

// A second transform takes as long as the first, so blocks that do not need one must not get it.
TEST(H4Accuracy, dense_data_is_hardly_ever_transformed_twice) {
  for (const Data& data : dense_data()) {
    if (data.name == "constant") continue;  // its coefficients are those of the signs: few values
    for (const int bits : kWidths) {
      for (const bool unbiased : {false, true}) {
        EXPECT_LE(share_transformed_twice({bits, unbiased}, data.values), 0.1) << data.name << ", bits " << bits;
      }
    }
  }
}

// One large element among small ones: after one transform all coefficients have nearly the same magnitude, and at 2
// bits the same level, which carries nothing of the small ones.
TEST(H4Accuracy, what_is_small_beside_something_large_does_not_get_lost) {
  std::vector<float> x = finite_families()[0].values(kBlocks * kH4Block, 12);
  for (std::size_t i = 9; i < x.size(); i += kH4Block) x[i] = 100.0f;
  for (const int bits : kWidths) {
    EXPECT_EQ(share_transformed_twice({bits, true}, x), 1) << bits;
    const Coded y = coded({bits, true}, 4, x);
    double product = 0, energy = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i % kH4Block == 9) continue;
      product += double{x[i]} * y.values[i];
      energy += double{x[i]} * x[i];
    }
    EXPECT_NEAR(product / energy, 1, 0.1) << bits;
  }
}

}  // namespace
}  // namespace qccl::kernels
