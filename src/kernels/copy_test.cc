#include "kernels/copy.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/every_simd.h"

namespace qccl::kernels {
namespace {

constexpr unsigned char kCanary = 0xA5;
constexpr std::size_t kMargin = 128;

// Checks that `bytes` bytes arrive whole and nothing beside them is written, at these distances from a 64-byte line.
void expect_exact(std::size_t bytes, std::size_t target_shift, std::size_t source_shift) {
  std::vector<unsigned char> source(bytes + kMargin), target(bytes + 2 * kMargin, kCanary);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 131 + i / 251);
  std::vector<unsigned char> expected = target;
  const std::size_t begin = kMargin / 2 + target_shift;
  for (std::size_t i = 0; i < bytes; ++i) expected[begin + i] = source[source_shift + i];
  copy(target.data() + begin, source.data() + source_shift, bytes);
  ASSERT_EQ(target, expected) << bytes << " bytes, shifts " << target_shift << " and " << source_shift;
}

TEST(Copy, every_byte_arrives_and_none_beside_at_every_tail_and_alignment) {
  on_every_simd([] {
    for (const std::size_t base : {0u, 1u, 2047u, 2048u, 4096u, 9000u}) {
      for (std::size_t tail = 0; tail < 70; ++tail) expect_exact(base + tail, tail % 64, (tail * 7) % 64);
    }
    for (std::size_t shift = 0; shift < 64; ++shift) expect_exact(5000, shift, 63 - shift);
    copy(nullptr, nullptr, 0);
  });
}

TEST(Copy, a_block_beyond_every_slice_is_copied_whole) {
  on_every_simd([] { expect_exact((4 << 20) + 4097, 3, 8); });
}

}  // namespace
}  // namespace qccl::kernels
