// Block integers for bucket_encoder.h (the rule: block_int_reference.h).
#pragma once

#include <bit>

#include "kernels/block_int/block_int_reference.h"
#include "kernels/device/codecs.h"

namespace qccl::kernels::device {

class BlockIntCodec {
 public:
  using Header = std::uint16_t;
  struct Quantizer {
    float scale;    // NaN: of a block that decodes to NaN
    float inverse;  // encoding only
  };

  // What a lane knows of a block's elements.
  struct Measure {
    std::uint32_t magnitude;
    bool again;  // never
  };

  QCCL_HD explicit BlockIntCodec(const SliceJob& job)
      : format_{job.format.bits, job.format.bucket}, largest_(reference::largest_integer(job.format.bits)) {}

  QCCL_HD int bits() const { return format_.bits; }
  QCCL_HD std::size_t header_bytes(std::uint32_t count) const { return block_int_scale_bytes(format_, count); }
  QCCL_HD Quantizer read(const std::byte* payload, std::uint32_t block) const {
    return {reference::read_scale(load_header<Header>(payload, block), format_.bits), 0};
  }
  QCCL_HD Quantizer quantizer_of(Header header) const {
    const float scale = reference::read_scale(header, format_.bits);
    return {scale, 1.0f / scale};
  }
  QCCL_HD std::uint32_t code(const Quantizer& q, float x) const {
    return q.scale != q.scale ? 0 : masked(reference::to_integer(x, q.inverse, largest_));
  }
  QCCL_HD std::uint32_t code(const Quantizer& q, float x, std::uint8_t random) const {
    return q.scale != q.scale ? 0 : masked(reference::to_integer(x, q.inverse, largest_, random));
  }
  QCCL_HD float value(const Quantizer& q, std::uint32_t code) const {
    return reference::from_integer(reference::sign_extended(code, format_.bits), q.scale);
  }

  // ---- measuring a block

  QCCL_HD int team_lanes() const { return kGroupLanes; }
  QCCL_HD void begin(Measure& own) const { own = {0, false}; }
  QCCL_HD void take(Measure& own, const Octet<float>& values, int count) const {
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      if (i < count) own.magnitude = greater(own.magnitude, reference::magnitude_bits(values.of[i]));
    }
  }
  template <class Group>
  QCCL_HD void end_block(Group& group, int lanes) const {
    group.join(&Measure::magnitude, lanes, [](std::uint32_t& a, std::uint32_t b) { a = greater(a, b); });
  }
  template <class Group>
  QCCL_HD void check(Group&, int /*lanes*/) const {}
  QCCL_HD Header header_of(const Measure& own, std::uint32_t /*count*/) const {
    return static_cast<Header>(reference::make_scale_bits(own.magnitude, format_.bits) >> 16);
  }

 private:
  QCCL_HD std::uint32_t masked(std::int32_t integer) const {
    return static_cast<std::uint32_t>(integer) & ((1u << format_.bits) - 1);
  }

  const BlockIntFormat format_;
  const std::int32_t largest_;
};

}  // namespace qccl::kernels::device
