#include "kernels/topk.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/topk.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#include "kernels/topk_scalar-inl.h"
#else
#include "kernels/topk-inl.h"
#endif

#if HWY_ONCE
namespace qccl::kernels {
namespace {

HWY_EXPORT(topk_encode);

float add_canonical(float a, float b) {
  const float sum = a + b;
  return sum != sum ? canonical_nan() : sum;
}

}  // namespace

void topk_encode(TopkFormat format, const float* source, std::size_t n, std::byte* target) {
  QCCL_DISPATCH(topk_encode)(format, source, n, target);
}

// Decoding is a memset and few elements: nothing for vectors.

bool topk_decode(TopkFormat format, const std::byte* source, float* target, std::size_t n) {
  return topk::each_chunk(format, source, n, [=](const topk::Chunk& chunk, std::size_t begin, std::size_t count) {
    if (!chunk.finite) return std::fill_n(target + begin, count, canonical_nan()), void();
    std::memset(target + begin, 0, count * sizeof(float));
    for (std::size_t i = 0; i < chunk.k; ++i) target[begin + chunk.places[i]] = chunk.values[i];
  });
}

bool topk_decode_add(TopkFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  return topk::each_chunk(format, source, n, [=](const topk::Chunk& chunk, std::size_t begin, std::size_t count) {
    float* sums = target + begin;
    if (!chunk.finite) return std::fill_n(sums, count, canonical_nan()), void();
    if (addend != target) std::memcpy(sums, addend + begin, count * sizeof(float));
    for (std::size_t i = 0; i < chunk.k; ++i) {
      float& sum = sums[chunk.places[i]];
      sum = add_canonical(sum, chunk.values[i]);
    }
  });
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
