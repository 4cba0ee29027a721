#include "codec/raw/raw_codec.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/copy.h"
#include "kernels/reduce/reduce.h"

namespace qccl {
namespace {

Status check_size(ConstBytes source, std::size_t elements) {
  if (source.size() / sizeof(float) == elements && source.size() % sizeof(float) == 0) return {};
  return Failure(ErrorKind::corrupt_data, fmt::format("raw float32: got {} bytes for {} elements, which take {}",
                                                      source.size(), elements, elements * sizeof(float)));
}

}  // namespace

std::size_t RawCodec::encode(std::span<const float> source, Bytes target, const RandomStream&) const {
  QCCL_CHECK(target.size() >= source.size_bytes());
  kernels::copy(target.data(), source.data(), source.size_bytes());
  return source.size_bytes();
}

Status RawCodec::decode(ConstBytes source, std::span<float> target) const {
  QCCL_TRY(check_size(source, target.size()));
  kernels::copy(target.data(), source.data(), source.size());
  return {};
}

Status RawCodec::decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const {
  QCCL_CHECK(addend.size() == target.size());
  QCCL_TRY(check_size(source, target.size()));
  kernels::reduce(DataType::float32, ReduceOp::sum, target.data(), addend.data(), source.data(), target.size());
  return {};
}

}  // namespace qccl
