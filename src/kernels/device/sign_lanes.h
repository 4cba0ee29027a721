// Signs for bucket_program.h (the rule: sign_reference.h). The specified order of a sum is that of a team's lanes:
// eight have the 64 columns of the mean's rows, two the 16 of the norm's, and join() adds columns l and l + 32, l + 16
// and so on.
#pragma once

#include <cmath>

#include "kernels/device/codecs.h"
#include "kernels/sign/sign_reference.h"

namespace qccl::kernels::device {

class SignCodec {
 public:
  using Header = float;
  using Quantizer = float;  // the scale

  static constexpr bool kRepeats = true;

  // What a lane knows of a bucket's elements.
  struct Measure {
    Octet<float> magnitudes;  // of its columns in the current block
    Octet<double> squares;
    double total;  // of the blocks before
    bool again;    // the sum of magnitudes overflowed or has no value: they are added once more, shrunk
  };

  QCCL_HD explicit SignCodec(const SliceJob& job)
      : format_{job.format.bucket, job.format.norm_scale}, codes_offset_(sign_scale_bytes(format_, job.count)) {}

  QCCL_HD static constexpr int bits() { return 1; }
  QCCL_HD std::uint32_t bucket() const { return format_.bucket_size; }
  QCCL_HD std::size_t codes_offset() const { return codes_offset_; }
  QCCL_HD Quantizer read(const std::byte* payload, std::uint32_t bucket) const {
    return reference::read_sign_scale(load_header<std::uint32_t>(payload, bucket));
  }
  QCCL_HD Quantizer quantizer_of(Header header) const { return header; }

  QCCL_HD Octet<std::uint32_t> codes(Quantizer, const Octet<float>& x) const {
    Octet<std::uint32_t> codes;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) codes.of[i] = x.of[i] < 0 ? 1 : 0;
    return codes;
  }
  QCCL_HD Octet<std::uint32_t> codes(Quantizer scale, const Octet<float>& x, const Octet<std::uint32_t>&) const {
    return codes(scale, x);
  }
  QCCL_HD Octet<float> values(Quantizer scale, const Octet<std::uint32_t>& codes) const {
    Octet<float> y;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) y.of[i] = reference::signed_scale(codes.of[i] != 0, scale);
    return y;
  }

  // ---- measuring a bucket

  QCCL_HD void begin(Measure& own) const { own = {{}, {}, 0, false}; }
  QCCL_HD void take(Measure& own, const Octet<float>& values, int count) const {
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      if (i >= count) break;
      const float x = values.of[i];
      if (format_.norm_scale) {
        own.squares.of[i] += double{x} * double{x};
      } else {
        own.magnitudes.of[i] += std::fabs(x);
      }
    }
  }
  QCCL_HD void take_again(Measure& own, const Octet<float>& values, int count) const {
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      if (i < count) own.magnitudes.of[i] += std::fabs(values.of[i]) * reference::kSignShrink;
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
  // Whether the elements are to be taken again. The sum of squares cannot overflow.
  QCCL_HD void check(Measure& own) const {
    if (format_.norm_scale || std::isfinite(own.total)) return;
    own.again = true;
    own.total = 0;
  }
  // Shrunk magnitudes cannot overflow.
  QCCL_HD Header header_of(const Measure& own, std::uint32_t count) const {
    if (format_.norm_scale) return reference::norm_scale(own.total, count);
    if (!std::isfinite(own.total)) return canonical_nan();
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
  const std::size_t codes_offset_;
};

}  // namespace qccl::kernels::device
