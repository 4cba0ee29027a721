// Block integers for bucket_program.h (the rule: block_int_reference.h).
#pragma once

#include "kernels/block_int/block_int_reference.h"
#include "kernels/device/codecs.h"
#include "kernels/device/group.h"

namespace qccl::kernels::device {

class BlockIntCodec {
 public:
  using Header = std::uint16_t;
  struct Quantizer {
    float scale;    // NaN: of a block that decodes to NaN
    float inverse;  // encoding only
  };

  static constexpr bool kIsOrdered = false;

  // What a lane knows of a block's elements.
  struct Measure {
    std::uint32_t magnitude;
  };

  QCCL_HD explicit BlockIntCodec(const SliceJob& job)
      : bits_(job.format.bits),
        block_(job.format.bucket),
        largest_(reference::largest_integer(job.format.bits)),
        codes_offset_(block_int_scale_bytes({bits_, block_}, job.count)) {}

  QCCL_HD int bits() const { return bits_; }
  QCCL_HD std::uint32_t bucket() const { return block_; }
  QCCL_HD std::size_t codes_offset() const { return codes_offset_; }
  QCCL_HD Quantizer read(const std::byte* payload, std::uint32_t block) const {
    return {reference::read_scale(load_header<Header>(payload, block), bits_), 0};
  }
  QCCL_HD Quantizer quantizer_of(Header header) const {
    const float scale = reference::read_scale(header, bits_);
    return {scale, 1.0f / scale};
  }

  QCCL_HD Octet<std::uint32_t> codes(const Quantizer& q, const Octet<float>& x) const {
    return codes_of(q, [&](int i) { return reference::to_integer(x.of[i], q.inverse, largest_); });
  }
  QCCL_HD Octet<std::uint32_t> codes(const Quantizer& q, const Octet<float>& x,
                                     const Octet<std::uint32_t>& random) const {
    return codes_of(q, [&](int i) {
      return reference::to_integer(x.of[i], q.inverse, largest_, static_cast<std::uint8_t>(random.of[i]));
    });
  }
  QCCL_HD Octet<float> values(const Quantizer& q, const Octet<std::uint32_t>& codes) const {
    Octet<float> y;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      y.of[i] = reference::from_integer(reference::sign_extended(codes.of[i], bits_), q.scale);
    }
    return y;
  }

  // ---- measuring a block

  template <class Use>
  QCCL_HD void with_sums(Use use) const {
    use(OneSum());
  }
  QCCL_HD void begin(Measure& own) const { own = {0}; }
  QCCL_HD void take(OneSum, Measure& own, const Octet<float>& values, int count) const {
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      if (i < count) own.magnitude = greater(own.magnitude, reference::magnitude_bits(values.of[i]));
    }
  }
  template <class Group>
  QCCL_HD void end_block(OneSum, Group& group, int lanes) const {
    join(group, &Measure::magnitude, lanes, [](std::uint32_t& a, std::uint32_t b) { a = greater(a, b); });
  }
  QCCL_HD Header header_of(const Measure& own, std::uint32_t /*count*/) const {
    return static_cast<Header>(reference::make_scale_bits(own.magnitude, bits_) >> 16);
  }

 private:
  template <class Integer>
  QCCL_HD Octet<std::uint32_t> codes_of(const Quantizer& q, Integer integer) const {
    Octet<std::uint32_t> codes{};
    if (q.scale != q.scale) return codes;
    const std::uint32_t mask = (1u << bits_) - 1;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) codes.of[i] = static_cast<std::uint32_t>(integer(i)) & mask;
    return codes;
  }

  const int bits_;
  const std::uint32_t block_;
  const std::int32_t largest_;
  const std::size_t codes_offset_;
};

}  // namespace qccl::kernels::device
