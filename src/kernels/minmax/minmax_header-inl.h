// Headers of buckets, in vectors. Per target.

#if defined(QCCL_KERNELS_MINMAX_HEADER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_MINMAX_HEADER_INL_H_
#undef QCCL_KERNELS_MINMAX_HEADER_INL_H_
#else
#define QCCL_KERNELS_MINMAX_HEADER_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "hwy/highway.h"
#include "kernels/lanes/value_lanes-inl.h"
#include "kernels/minmax/minmax.h"
#include "kernels/minmax/minmax_reference.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using reference::BucketHeader;
using reference::BucketKind;
using reference::Quantizer;

inline bool all_finite(const float* source, std::size_t n) {
  bool finite = true;
  for (std::size_t i = 0; i < n; ++i) finite = std::isfinite(source[i]) && finite;
  return finite;
}

// Running minimum, maximum and sum of one vector in each row. The sum is not finite if an element is not; the reverse
// is not true, so it only says when to look closely.
struct Extremes {
  Values minimum;
  Values maximum;
  Values sum;

  HWY_INLINE void take(Values v) {
    minimum = hn::Min(v, minimum);
    maximum = hn::Max(v, maximum);
    sum = hn::Add(sum, v);
  }
  HWY_INLINE void take(const Extremes& other) {
    minimum = hn::Min(other.minimum, minimum);
    maximum = hn::Max(other.maximum, maximum);
    sum = hn::Add(sum, other.sum);
  }
};

// The values with which a bucket is encoded.
struct Bucket {
  BucketHeader header;
  Quantizer quantizer;
  // Whether vectors may encode it: it is normal, and no element is more than kMostSteps units above the minimum (if the
  // range is an ulp or two, the unit may come out far too small, or zero and be raised to 2^-126).
  bool in_vectors = false;
  static constexpr float kMostSteps = 0x1p22f;
};

HWY_INLINE void make_bucket(const float* source, std::size_t n, float levels, Bucket& bucket) {
  const ValueTag d;
  const std::size_t lanes = hn::Lanes(d);
  const Values first = hn::Set(d, source[0]);
  const Values zero = hn::Zero(d);
  Extremes a{first, first, zero}, b{first, first, zero}, c{first, first, zero}, e{first, first, zero};
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a.take(hn::LoadU(d, source + i));
    b.take(hn::LoadU(d, source + i + lanes));
    c.take(hn::LoadU(d, source + i + 2 * lanes));
    e.take(hn::LoadU(d, source + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) a.take(hn::LoadU(d, source + i));
  a.take(b);
  c.take(e);
  a.take(c);
  float minimum = hn::GetLane(hn::MinOfLanes(d, a.minimum));
  float maximum = hn::GetLane(hn::MaxOfLanes(d, a.maximum));
  float sum = hn::GetLane(hn::SumOfLanes(d, a.sum));
  for (; i < n; ++i) {
    minimum = std::min(minimum, source[i]);
    maximum = std::max(maximum, source[i]);
    sum += source[i];
  }
  const bool finite = std::isfinite(sum) || all_finite(source, n);
  bucket.header = finite ? reference::make_header(minimum, maximum, levels) : reference::invalid_header();
  bucket.quantizer = reference::make_quantizer(bucket.header, levels);
  bucket.in_vectors = bucket.quantizer.kind == BucketKind::normal &&
                      (maximum - bucket.quantizer.minimum) * bucket.quantizer.inverse <= Bucket::kMostSteps;
}

// The buckets of a slice, each computed one bucket ahead: the chain of reductions and divisions that ends in a
// quantizer then overlaps with the encoding of the bucket before. Buckets are never copied: a copy would wait for the
// whole chain.
class BucketsAhead {
 public:
  HWY_INLINE BucketsAhead(MinmaxFormat format, const float* source, std::size_t n, std::byte* headers)
      : levels_(reference::largest_code(format.bits)),
        bucket_size_(format.bucket_size),
        source_(source),
        left_(n),
        headers_(headers) {
    prepare();
  }
  // Moves on to the next bucket, which begins at `begin`, and writes its header; returns its end.
  HWY_INLINE std::size_t next(std::size_t begin) {
    std::swap(current_, ahead_);
    std::memcpy(headers_, &current_->header.unit, sizeof(float));
    std::memcpy(headers_ + sizeof(float), &current_->header.minimum, sizeof(float));
    headers_ += kBucketHeaderBytes;
    const std::size_t end = begin + size_;
    source_ += size_;
    left_ -= size_;
    prepare();
    return end;
  }
  const Bucket& current() const { return *current_; }

 private:
  HWY_INLINE void prepare() {
    size_ = std::min(left_, bucket_size_);
    if (size_ > 0) make_bucket(source_, size_, levels_, *ahead_);
  }

  const float levels_;
  const std::size_t bucket_size_;
  const float* source_;
  std::size_t left_;
  std::byte* headers_;
  std::size_t size_ = 0;
  Bucket buckets_[2];
  Bucket* current_ = &buckets_[0];
  Bucket* ahead_ = &buckets_[1];
};

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
