// Sends float32 as bfloat16 or float16.
//
// Layout: one 16-bit value an element, little-endian, in order: 2 * elements bytes.
// Rounding: to nearest even; infinity beyond the type's largest value. NaN: the canonical NaN. Error: at most 2^-8 |x|
// (bfloat16) or 2^-11 |x| (float16), at least half the smallest subnormal (2^-134, 2^-25); unbounded if x rounds to
// infinity.
// Source: IEEE 754 binary16; bfloat16.
#pragma once

#include "codec/registry.h"

namespace qccl {

extern const CodecEntry kCastCodec;

class CastCodec final : public Codec {
 public:
  // `wire`: bfloat16 or float16.
  explicit CastCodec(DataType wire) : wire_(wire) {}

  std::uint32_t bucket_size() const override { return 1; }
  std::size_t max_encoded_bytes(std::size_t elements) const override { return elements * 2; }
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const override;
  Status decode(ConstBytes source, std::span<float> target) const override;
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override;
  double error_bound(const BlockSummary& block) const override;

 private:
  Status check_size(ConstBytes source, std::size_t elements) const;

  const DataType wire_;
};

}  // namespace qccl
