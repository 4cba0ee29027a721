#include "codec/minmax_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace qccl {
namespace {

// Distance from |x| to the next larger float32 in the same binade.
double ulp(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::max(std::ldexp(1.0, exponent - 24), 0x1p-149);
}

}  // namespace

std::size_t MinmaxCodec::max_encoded_bytes(std::size_t elements) const {
  return kernels::minmax_encoded_bytes(format_, elements);
}

std::size_t MinmaxCodec::encode(std::span<const float> source, Bytes target) const {
  const std::size_t bytes = max_encoded_bytes(source.size());
  QCCL_CHECK(target.size() >= bytes);
  kernels::minmax_encode(format_, source.data(), source.size(), target.data());
  return bytes;
}

Status MinmaxCodec::check_size(ConstBytes source, std::size_t elements) const {
  const std::size_t bytes = max_encoded_bytes(elements);
  if (source.size() == bytes) return {};
  return Failure(ErrorKind::corrupt_data,
                 fmt::format("minmax of {} bits in buckets of {}: got {} bytes for {} elements, which take {}",
                             format_.bits, format_.bucket_size, source.size(), elements, bytes));
}

Status MinmaxCodec::decode(ConstBytes source, std::span<float> target) const {
  QCCL_TRY(check_size(source, target.size()));
  kernels::minmax_decode(format_, source.data(), target.data(), target.size());
  return {};
}

Status MinmaxCodec::decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const {
  QCCL_CHECK(addend.size() == target.size());
  QCCL_TRY(check_size(source, target.size()));
  kernels::minmax_decode_add(format_, source.data(), addend.data(), target.data(), target.size());
  return {};
}

double MinmaxCodec::error_bound(float minimum, float maximum) const {
  const double levels = std::ldexp(1.0, format_.bits) - 1;
  const double unit = std::max((static_cast<double>(maximum) - minimum) / levels, 0x1p-126);
  return unit / 2 + 6 * ulp(std::max(std::fabs(minimum), std::fabs(maximum)));
}

}  // namespace qccl
