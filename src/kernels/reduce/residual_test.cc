#include "kernels/reduce/reduce.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/guarded.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

// The residual after the call, as bits.
std::vector<std::uint32_t> left(const std::vector<float>& value, const std::vector<float>& sent, float factor,
                                const std::vector<float>& before, std::size_t shift = 0) {
  const auto from = Guarded<float>::input(value, 2 * shift), taken = Guarded<float>::input(sent, 3 * shift);
  auto residual = Guarded<float>::output(before, shift);
  keep_residual(from.data(), taken.data(), factor, residual.data(), before.size());
  return bits_of(residual);
}

TEST(Residual, every_target_equals_the_reference_for_every_kind_of_value_tail_and_alignment) {
  const auto families = families_with_nonfinite();
  for (std::size_t n = 0; n <= 90; n += n < 40 ? 1 : 7) {
    for (std::size_t i = 0; i < families.size(); ++i) {
      const auto value = families[i].values(n, 1);
      const auto sent = families[(i + n) % families.size()].values(n, 2);
      const auto residual = families[0].values(n, 3);
      for (const float factor : {1.0f, 3.0f}) {
        const auto expected = by_reference([&] { return left(value, sent, factor, residual); });
        on_every_simd([&] { ASSERT_EQ(left(value, sent, factor, residual, n % 16), expected); });
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Residual, differences_are_kept_unless_they_are_not_finite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> value = {5, 5, kInfinity, 5, 3e38f, 1, 0, -1};
  const std::vector<float> sent = {3, 5, kInfinity, std::nanf(""), -3e38f, -kInfinity, 0, 1};
  on_every_simd([&] {
    EXPECT_EQ(left(value, sent, 2, std::vector<float>(8, 7.0f)), bits_of({4, 0, 7, 7, 7, 7, 0, -4}));
  });
}

}  // namespace
}  // namespace qccl::kernels
