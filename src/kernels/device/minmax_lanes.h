// Max-min quantization for bucket_program.h (the rule: minmax_reference.h).
#pragma once

#include <cmath>
#include <limits>

#include "kernels/device/codecs.h"
#include "kernels/device/group.h"
#include "kernels/minmax/minmax_reference.h"

namespace qccl::kernels::device {

class MinmaxCodec {
 public:
  using Header = reference::BucketHeader;
  using Quantizer = reference::Quantizer;

  static constexpr bool kIsOrdered = false;

  // What a lane knows of a bucket's elements.
  struct Measure {
    struct Extremes {
      float low;  // -infinity if an element is NaN
      float high;
    };
    Extremes extremes;
  };

  QCCL_HD explicit MinmaxCodec(const SliceJob& job)
      : bits_(job.format.bits),
        bucket_(job.format.bucket),
        levels_(reference::largest_code(job.format.bits)),
        codes_offset_(minmax_header_bytes({bits_, bucket_}, job.count)) {}

  QCCL_HD int bits() const { return bits_; }
  QCCL_HD std::uint32_t bucket() const { return bucket_; }
  QCCL_HD std::size_t codes_offset() const { return codes_offset_; }
  QCCL_HD Quantizer read(const std::byte* payload, std::uint32_t bucket) const {
    return quantizer_of(load_header<Header>(payload, bucket));
  }
  QCCL_HD Quantizer quantizer_of(Header header) const { return reference::make_quantizer(header, levels_); }

  QCCL_HD Octet<std::uint32_t> codes(const Quantizer& q, const Octet<float>& x) const {
    if (q.kind != reference::BucketKind::normal) return unusual_codes(q, x);
    Octet<std::uint32_t> codes;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) codes.of[i] = static_cast<std::uint32_t>(steps_of(q, x.of[i]) + 0.5f);
    return codes;
  }
  QCCL_HD Octet<std::uint32_t> codes(const Quantizer& q, const Octet<float>& x,
                                     const Octet<std::uint32_t>& random) const {
    if (q.kind != reference::BucketKind::normal) return unusual_codes(q, x, random);
    Octet<std::uint32_t> codes;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      const float fine = steps_of(q, x.of[i]) * 256.0f;  // at most 255 * 256
      const float rounded = (fine + kWhole) - kWhole;
      codes.of[i] = (static_cast<std::uint32_t>(rounded) + random.of[i]) >> 8;
    }
    return codes;
  }
  QCCL_HD Octet<float> values(const Quantizer& q, const Octet<std::uint32_t>& codes) const {
    if (q.kind != reference::BucketKind::normal) return unusual_values(q, codes);
    Octet<float> y;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) y.of[i] = q.minimum + static_cast<float>(codes.of[i]) * q.unit;
    return y;
  }

  // ---- measuring a bucket

  template <class Use>
  QCCL_HD void with_sums(Use use) const {
    use(OneSum());
  }
  QCCL_HD void begin(Measure& own) const { own = {{kInfinity, -kInfinity}}; }
  QCCL_HD void take(OneSum, Measure& own, const Octet<float>& values, int count) const {
    Measure::Extremes& known = own.extremes;
    bool has_nan = false;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; i += 2) {
      const float a = values.of[i], b = i + 1 < count ? values.of[i + 1] : a;
      if (i >= count) break;
      known.low = fminf(fminf(known.low, a), b);
      known.high = fmaxf(fmaxf(known.high, a), b);
      has_nan |= is_unordered(a, b);
    }
    if (has_nan) known.low = -kInfinity;
  }
  template <class Group>
  QCCL_HD void end_block(OneSum, Group& group, int lanes) const {
    join(group, &Measure::extremes, lanes, [](Measure::Extremes& a, const Measure::Extremes& b) {
      a.low = fminf(a.low, b.low);
      a.high = fmaxf(a.high, b.high);
    });
  }
  QCCL_HD Header header_of(const Measure& own, std::uint32_t /*count*/) const {
    const auto [low, high] = own.extremes;
    if (low == -kInfinity || high == kInfinity) return reference::invalid_header();
    return reference::make_header(low, high, levels_);
  }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  static constexpr float kWhole = 0x1p23f;  // from here on a float is a whole number

  // Of a normal bucket, as reference::steps_of().
  QCCL_HD float steps_of(const Quantizer& q, float x) const { return fminf((x - q.minimum) * q.inverse, levels_); }

  // Of wide and of invalid buckets.
  QCCL_HD_COLD static Octet<std::uint32_t> unusual_codes(Quantizer q, Octet<float> x) {
    Octet<std::uint32_t> codes;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) codes.of[i] = reference::encode_element(q, x.of[i]);
    return codes;
  }
  QCCL_HD_COLD static Octet<std::uint32_t> unusual_codes(Quantizer q, Octet<float> x, Octet<std::uint32_t> random) {
    Octet<std::uint32_t> codes;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      codes.of[i] = reference::encode_element(q, x.of[i], static_cast<std::uint8_t>(random.of[i]));
    }
    return codes;
  }
  QCCL_HD_COLD static Octet<float> unusual_values(Quantizer q, Octet<std::uint32_t> codes) {
    Octet<float> y;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) y.of[i] = reference::decode_element(q, codes.of[i]);
    return y;
  }

  const int bits_;
  const std::uint32_t bucket_;
  const float levels_;
  const std::size_t codes_offset_;
};

}  // namespace qccl::kernels::device
