#include "codec/cast_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/half.h"
#include "kernels/reduce.h"

namespace qccl {

std::size_t CastCodec::encode(std::span<const float> source, Bytes target) const {
  QCCL_CHECK(target.size() >= max_encoded_bytes(source.size()));
  kernels::narrow(wire_, target.data(), source.data(), source.size());
  return max_encoded_bytes(source.size());
}

Status CastCodec::check_size(ConstBytes source, std::size_t elements) const {
  if (source.size() / 2 == elements && source.size() % 2 == 0) return {};
  return Failure(ErrorKind::corrupt_data, fmt::format("cast to {}: got {} bytes for {} elements, which take {}",
                                                      to_string(wire_), source.size(), elements, elements * 2));
}

Status CastCodec::decode(ConstBytes source, std::span<float> target) const {
  QCCL_TRY(check_size(source, target.size()));
  kernels::widen(wire_, target.data(), source.data(), target.size());
  return {};
}

Status CastCodec::decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const {
  QCCL_CHECK(addend.size() == target.size());
  QCCL_TRY(check_size(source, target.size()));
  kernels::reduce_widened(wire_, ReduceOp::sum, target.data(), addend.data(), source.data(), target.size());
  return {};
}

double CastCodec::error_bound(float minimum, float maximum) const {
  const float most = std::max(std::fabs(minimum), std::fabs(maximum));
  const bool is_half = wire_ == DataType::float16;
  const float rounded = is_half ? to_float(to_float16(most)) : to_float(to_bfloat16(most));
  if (!std::isfinite(rounded)) return std::numeric_limits<double>::infinity();
  return is_half ? std::max(most * 0x1p-11, 0x1p-25) : std::max(most * 0x1p-8, 0x1p-134);
}

}  // namespace qccl
