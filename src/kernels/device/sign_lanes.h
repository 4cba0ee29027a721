// Signs for bucket_encoder.h (the rule: sign_reference.h). The specified order of a sum is that of a team's lanes:
// eight have the 64 columns of the mean's rows, two the 16 of the norm's, and join() adds columns l and l + 32, l + 16
// and so on.
#pragma once

#include <bit>
#include <cmath>

#include "kernels/device/codecs.h"
#include "kernels/sign/sign_reference.h"

namespace qccl::kernels::device {

class SignCodec {
 public:
  using Header = float;
  using Quantizer = float;  // the scale

  // What a lane knows of a bucket's elements.
  struct Measure {
    Octet<float> magnitudes;  // of its columns in the current block
    Octet<double> squares;
    double total;  // of the blocks before
    std::uint32_t is_finite;
    bool again;  // the sum of magnitudes overflowed: they are added once more, shrunk
  };

  QCCL_HD explicit SignCodec(const SliceJob& job) : format_{job.format.bucket, job.format.norm_scale} {}

  QCCL_HD static constexpr int bits() { return 1; }
  QCCL_HD std::size_t header_bytes(std::uint32_t count) const { return sign_scale_bytes(format_, count); }
  QCCL_HD Quantizer read(const std::byte* payload, std::uint32_t bucket) const {
    return reference::read_sign_scale(load_header<std::uint32_t>(payload, bucket));
  }
  QCCL_HD Quantizer quantizer_of(Header header) const { return header; }
  QCCL_HD std::uint32_t code(Quantizer, float x) const { return x < 0 ? 1 : 0; }
  QCCL_HD std::uint32_t code(Quantizer scale, float x, std::uint8_t /*random*/) const { return code(scale, x); }
  QCCL_HD float value(Quantizer scale, std::uint32_t code) const { return reference::signed_scale(code != 0, scale); }

  // ---- measuring a bucket

  QCCL_HD int team_lanes() const {
    return static_cast<int>(format_.norm_scale ? reference::kSignSquareLanes : reference::kMagnitudeLanes) / kOctet;
  }
  QCCL_HD void begin(Measure& own) const { own = {{}, {}, 0, 1, false}; }
  QCCL_HD void take(Measure& own, const Octet<float>& values, int count) const {
    const float factor = own.again ? reference::kSignShrink : 1.0f;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      if (i >= count) break;
      const float x = values.of[i];
      if (!std::isfinite(x)) own.is_finite = 0;
      if (format_.norm_scale) {
        own.squares.of[i] += double{x} * double{x};
      } else {
        own.magnitudes.of[i] += std::fabs(x) * factor;
      }
    }
  }
  template <class Group>
  QCCL_HD void end_block(Group& group, int lanes) const {
    if (format_.norm_scale) {
      end_block_of(group, &Measure::squares, lanes);
    } else {
      end_block_of(group, &Measure::magnitudes, lanes);
    }
  }
  template <class Group>
  QCCL_HD void check(Group& group, int lanes) const {
    group.join(&Measure::is_finite, lanes, [](std::uint32_t& a, std::uint32_t b) { a &= b; });
    const bool mean = !format_.norm_scale;
    group.each([&](int, Measure& own) {
      if (own.again || !mean || std::isfinite(own.total) || own.is_finite == 0) return;
      own.again = true;
      own.total = 0;
    });
  }
  QCCL_HD Header header_of(const Measure& own, std::uint32_t count) const {
    if (own.is_finite == 0) return canonical_nan();
    if (format_.norm_scale) return reference::norm_scale(own.total, count);
    return reference::mean_scale_of(own.again ? own.total / double{reference::kSignShrink} : own.total, count);
  }

 private:
  // Adds the lanes' columns, as reference::sum_of_lanes(), to the totals.
  template <class Group, class T>
  QCCL_HD void end_block_of(Group& group, Octet<T> Measure::*columns, int lanes) const {
    group.join(columns, lanes, [](Octet<T>& a, const Octet<T>& b) {
      QCCL_UNROLL
      for (int i = 0; i < kOctet; ++i) a.of[i] += b.of[i];
    });
    group.each([&](int, Measure& own) {
      Octet<T>& sums = own.*columns;
      QCCL_UNROLL
      for (int width = kOctet / 2; width > 0; width /= 2) {
        QCCL_UNROLL
        for (int i = 0; i < width; ++i) sums.of[i] += sums.of[i + width];
      }
      own.total += sums.of[0];
      sums = {};
    });
  }

  const SignFormat format_;
};

}  // namespace qccl::kernels::device
