#include "kernels/reduce/residual.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"
#include "kernels/test_values.h"

namespace qccl::kernels {
namespace {

using Memory = std::vector<char>;
constexpr char kCanary = 0x5A;

Memory placed(const std::vector<float>& values, std::size_t shift) {
  Memory memory(shift + values.size() * sizeof(float) + 64, kCanary);
  if (!values.empty()) std::memcpy(memory.data() + shift, values.data(), values.size() * sizeof(float));
  return memory;
}

// The residual after the call, including the bytes behind it.
Memory left(const std::vector<float>& value, const std::vector<float>& sent, float factor,
            const std::vector<float>& residual, std::size_t shift = 0) {
  const Memory from = placed(value, 2 * shift), taken = placed(sent, 3 * shift);
  Memory target = placed(residual, shift);
  keep_residual(reinterpret_cast<const float*>(from.data() + 2 * shift),
                reinterpret_cast<const float*>(taken.data() + 3 * shift), factor,
                reinterpret_cast<float*>(target.data() + shift), residual.size());
  for (std::size_t i = 0; i < shift; ++i) EXPECT_EQ(target[i], kCanary);
  return {target.begin() + static_cast<std::ptrdiff_t>(shift), target.end()};
}

TEST(Residual, every_target_equals_the_reference_for_every_kind_of_value_tail_and_alignment) {
  const auto families = families_with_nonfinite();
  for (std::size_t n = 0; n <= 90; n += n < 40 ? 1 : 7) {
    for (std::size_t i = 0; i < families.size(); ++i) {
      const auto value = families[i].values(n, 1);
      const auto sent = families[(i + n) % families.size()].values(n, 2);
      const auto residual = families[0].values(n, 3);
      for (const float factor : {1.0f, 3.0f}) {
        const Memory expected = by_reference([&] { return left(value, sent, factor, residual); });
        on_every_simd([&] { ASSERT_EQ(left(value, sent, factor, residual, n % 16), expected); });
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Residual, what_was_not_sent_is_left_and_nothing_that_is_no_number) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> value = {5, 5, kInfinity, 5, 3e38f, 1, 0, -1};
  const std::vector<float> sent = {3, 5, kInfinity, std::nanf(""), -3e38f, -kInfinity, 0, 1};
  on_every_simd([&] {
    const Memory memory = left(value, sent, 2, std::vector<float>(8, 7.0f));
    std::vector<float> residual(8);
    std::memcpy(residual.data(), memory.data(), 8 * sizeof(float));
    EXPECT_EQ(residual, (std::vector<float>{4, 0, 7, 7, 7, 7, 0, -4}));
  });
}

}  // namespace
}  // namespace qccl::kernels
