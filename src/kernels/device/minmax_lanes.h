// Max-min quantization for bucket_encoder.h (the rule: minmax_reference.h).
#pragma once

#include <cmath>
#include <limits>

#include "kernels/device/codecs.h"
#include "kernels/minmax/minmax_reference.h"

namespace qccl::kernels::device {

class MinmaxCodec {
 public:
  using Header = reference::BucketHeader;
  using Quantizer = reference::Quantizer;

  // What a lane knows of a bucket's elements.
  struct Measure {
    struct Extremes {
      float low;
      float high;
      std::uint32_t is_finite;
    };
    Extremes extremes;
    bool again;  // never
  };

  QCCL_HD explicit MinmaxCodec(const SliceJob& job)
      : format_{job.format.bits, job.format.bucket}, levels_(reference::largest_code(job.format.bits)) {}

  QCCL_HD int bits() const { return format_.bits; }
  QCCL_HD std::size_t header_bytes(std::uint32_t count) const { return minmax_header_bytes(format_, count); }
  QCCL_HD Quantizer read(const std::byte* payload, std::uint32_t bucket) const {
    return quantizer_of(load_header<Header>(payload, bucket));
  }
  QCCL_HD Quantizer quantizer_of(Header header) const { return reference::make_quantizer(header, levels_); }
  QCCL_HD std::uint32_t code(const Quantizer& q, float x) const { return reference::encode_element(q, x); }
  QCCL_HD std::uint32_t code(const Quantizer& q, float x, std::uint8_t random) const {
    return reference::encode_element(q, x, random);
  }
  QCCL_HD float value(const Quantizer& q, std::uint32_t code) const { return reference::decode_element(q, code); }

  // ---- measuring a bucket

  QCCL_HD int team_lanes() const { return kGroupLanes; }
  QCCL_HD void begin(Measure& own) const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    own = {{kInfinity, -kInfinity, 1}, false};
  }
  QCCL_HD void take(Measure& own, const Octet<float>& values, int count) const {
    Measure::Extremes& known = own.extremes;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      if (i >= count) break;
      known.low = lesser(known.low, values.of[i]);
      known.high = greater(known.high, values.of[i]);
      if (!std::isfinite(values.of[i])) known.is_finite = 0;
    }
  }
  template <class Group>
  QCCL_HD void end_block(Group& group, int lanes) const {
    group.join(&Measure::extremes, lanes, [](Measure::Extremes& a, const Measure::Extremes& b) {
      a.low = lesser(a.low, b.low);
      a.high = greater(a.high, b.high);
      a.is_finite &= b.is_finite;
    });
  }
  template <class Group>
  QCCL_HD void check(Group&, int /*lanes*/) const {}
  QCCL_HD Header header_of(const Measure& own, std::uint32_t /*count*/) const {
    if (own.extremes.is_finite == 0) return reference::invalid_header();
    return reference::make_header(own.extremes.low, own.extremes.high, levels_);
  }

 private:
  const MinmaxFormat format_;
  const float levels_;
};

}  // namespace qccl::kernels::device
