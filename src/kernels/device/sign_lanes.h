// Signs for bucket_program.h (the rule: sign_reference.h). The specified order of a sum is that of a team's lanes:
// eight have the 64 columns of the mean's rows, two the 16 of the norm's, and join() adds columns l and l + 32, l + 16
// and so on. Where a bucket has more rows than such lanes hold, the next lanes of the team go on with their columns.
#pragma once

#include <cmath>

#include "kernels/device/codecs.h"
#include "kernels/device/group.h"
#include "kernels/sign/sign_reference.h"

namespace qccl::kernels::device {

class SignCodec {
 public:
  using Header = float;
  using Quantizer = float;  // the scale

  static constexpr bool kIsOrdered = true;  // sums have an order, and may be made again

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

  // What is added of an element, and where: magnitudes for a mean, squares for a norm. A choice for all of a bucket, so
  // that a device does not compute both.
  struct Magnitudes {
    static constexpr auto kColumns = &Measure::magnitudes;
    QCCL_HD static float of(float x) { return std::fabs(x); }
  };
  struct Squares {
    static constexpr auto kColumns = &Measure::squares;
    QCCL_HD static double of(float x) { return double{x} * double{x}; }
  };
  template <class Use>
  QCCL_HD void with_sums(Use use) const {
    if (format_.norm_scale) {
      use(Squares());
    } else {
      use(Magnitudes());
    }
  }

  QCCL_HD void begin(Measure& own) const { own = {{}, {}, 0, false}; }
  template <class Sums>
  QCCL_HD void take(Sums, Measure& own, const Octet<float>& values, int count) const {
    auto& columns = own.*Sums::kColumns;
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      if (i < count) columns.of[i] += Sums::of(values.of[i]);
    }
  }
  QCCL_HD void take_again(Measure& own, const Octet<float>& values, int count) const {
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      if (i < count) own.magnitudes.of[i] += std::fabs(values.of[i]) * reference::kSignShrink;
    }
  }
  // The lanes for which goes_on(lane) holds take over the sums of the lanes `step` away, whose rows come before theirs.
  template <class Sums, class Group, class GoesOn>
  QCCL_HD void hand_on(Sums, Group& group, int step, GoesOn goes_on) const {
    group.swap(Sums::kColumns, step, [&](int lane, auto& own, const auto& other) {
      if (goes_on(lane)) own.*Sums::kColumns = other;
    });
  }
  // Adds the lanes' columns, as reference::sum_of_lanes(), to the totals.
  template <class Sums, class Group>
  QCCL_HD void end_block(Sums, Group& group, int lanes) const {
    join(group, Sums::kColumns, lanes, [](auto& a, const auto& b) {
      QCCL_UNROLL
      for (int i = 0; i < kOctet; ++i) a.of[i] += b.of[i];
    });
    group.each([&](int, auto& own) {
      auto& sums = own.*Sums::kColumns;
      QCCL_UNROLL
      for (int width = kOctet / 2; width > 0; width /= 2) {
        QCCL_UNROLL
        for (int i = 0; i < width; ++i) sums.of[i] += sums.of[i + width];
      }
      own.total += sums.of[0];
      sums = {};
    });
  }
  // After end_block(): gives every lane of a team the total of the team's last `columns` lanes.
  template <class Group>
  QCCL_HD void share(Group& group, int columns, int lanes) const {
    for (int step = columns; step < lanes; step *= 2) {
      group.swap(&Measure::total, step, [&](int lane, auto& own, double other) {
        if ((lane & step) == 0) own.total = other;
      });
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
  const SignFormat format_;
  const std::size_t codes_offset_;
};

}  // namespace qccl::kernels::device
