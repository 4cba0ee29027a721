// The kernels' contract.
#include "kernels/h4/h4.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/codec_kernel_contract.h"

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

}  // namespace
}  // namespace qccl::kernels
