// sign.h for the target without vectors: the reference itself, element by element.

#include "kernels/sign/sign_reference.h"

namespace qccl::kernels::HWY_NAMESPACE {

// Calls keep(index, decoded) for each element of buckets whose scale is a number.
template <class Keep>
void encode_each(SignFormat format, const float* source, std::size_t n, std::byte* target, Keep keep) {
  std::byte* const signs = target + sign_scale_bytes(format, n);
  std::fill_n(signs, sign_bit_bytes(n), std::byte{0});
  for (std::size_t begin = 0; begin < n; begin += format.bucket_size, target += kSignScaleBytes) {
    const std::size_t count = std::min<std::size_t>(format.bucket_size, n - begin);
    const float* const bucket = source + begin;
    const float scale = format.norm_scale
                            ? reference::norm_scale(reference::square_sum(bucket, count), count)
                            : reference::mean_scale(reference::magnitude_sum(bucket, count), bucket, count);
    std::memcpy(target, &scale, sizeof(scale));
    for (std::size_t i = begin; i < begin + count; ++i) {
      const bool negative = source[i] < 0;
      if (negative) signs[i / 8] |= static_cast<std::byte>(1u << (i % 8));
      if (scale == scale) keep(i, reference::signed_scale(negative, scale));
    }
  }
}

void sign_encode(SignFormat format, const float* source, std::size_t n, std::byte* target) {
  encode_each(format, source, n, target, [](std::size_t, float) {});
}

void sign_encode_with_residual(SignFormat format, const float* source, std::size_t n, std::byte* target, float factor,
                               float* residual) {
  encode_each(format, source, n, target, [=](std::size_t i, float y) {
    const float left = (source[i] - y) * factor;
    if (std::isfinite(left)) residual[i] = left;
  });
}

// Calls use(index, decoded) for all elements in order.
template <class Use>
void decode_each(SignFormat format, const std::byte* source, std::size_t n, Use use) {
  const std::byte* const signs = source + sign_scale_bytes(format, n);
  for (std::size_t i = 0; i < n; ++i) {
    const float scale = reference::read_sign_scale(source + i / format.bucket_size * kSignScaleBytes);
    use(i, reference::signed_scale(reference::is_negative(signs, i), scale));
  }
}

void sign_decode(SignFormat format, const std::byte* source, float* target, std::size_t n) {
  decode_each(format, source, n, [=](std::size_t i, float y) { target[i] = y; });
}

void sign_decode_add(SignFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  decode_each(format, source, n, [=](std::size_t i, float y) {
    const float sum = addend[i] + y;
    target[i] = sum != sum ? canonical_nan() : sum;
  });
}

}  // namespace qccl::kernels::HWY_NAMESPACE
