#include "codec/codec.h"

#include <fmt/format.h>

#include "base/log.h"

namespace qccl {

std::size_t FixedSizeCodec::encode(std::span<const float> source, Bytes target, const RandomStream& random) const {
  const std::size_t bytes = max_encoded_bytes(source.size());
  QCCL_CHECK(target.size() >= bytes);
  write(source, target.data(), random);
  return bytes;
}

Status FixedSizeCodec::decode(ConstBytes source, std::span<float> target) const {
  QCCL_TRY(check_size(source, target.size()));
  return read(source.data(), nullptr, target);
}

Status FixedSizeCodec::decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const {
  QCCL_CHECK(addend.size() == target.size());
  QCCL_TRY(check_size(source, target.size()));
  return read(source.data(), addend.data(), target);
}

Status FixedSizeCodec::check_size(ConstBytes source, std::size_t elements) const {
  const std::size_t bytes = max_encoded_bytes(elements);
  if (source.size() == bytes) return {};
  return Failure(ErrorKind::corrupt_data, fmt::format("{}: got {} bytes for {} elements, which take {}", description(),
                                                      source.size(), elements, bytes));
}

std::size_t VariableSizeCodec::encode(std::span<const float> source, Bytes target, const RandomStream& random) const {
  QCCL_CHECK(target.size() >= max_encoded_bytes(source.size()));
  const std::size_t bytes = write(source, target.data(), random);
  QCCL_CHECK(bytes <= target.size());
  return bytes;
}

Status VariableSizeCodec::decode(ConstBytes source, std::span<float> target) const {
  return read_or_fail(source, nullptr, target);
}

Status VariableSizeCodec::decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const {
  QCCL_CHECK(addend.size() == target.size());
  return read_or_fail(source, addend.data(), target);
}

Status VariableSizeCodec::read_or_fail(ConstBytes source, const float* addend, std::span<float> target) const {
  if (read(source, addend, target)) return {};
  return Failure(ErrorKind::corrupt_data,
                 fmt::format("{}: {} bytes are not {} elements", description(), source.size(), target.size()));
}

}  // namespace qccl
