// minmax_encode() in vectors. Per target.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "hwy/highway.h"
#include "kernels/lanes/codes-inl.h"
#include "kernels/lanes/pack-inl.h"
#include "kernels/lanes/random-inl.h"
#include "kernels/lanes/value_lanes-inl.h"
#include "kernels/minmax/minmax_reference.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

// ---- Headers of buckets.

using reference::BucketHeader;
using reference::BucketKind;
using reference::Quantizer;

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
  const bool finite = std::isfinite(sum) || reference::all_finite(source, n);
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

// ---- Codes.

inline constexpr std::size_t kBlock = 1024;  // 4 KiB of floats: stays in L1 between two passes
inline constexpr std::size_t kChunk = 64;    // elements whose codes are whole bytes, for any width
static_assert(kBlock % kCodesPerVector == 0 && kBlock % kChunk == 0);

// ---- Rounding: begin() a block of the slice, then get codes of elements that lie `steps` units above the minimum,
// from element `at` of the block on. The caller clamps results above D.

struct HalfUpCodes {
  explicit HalfUpCodes(const RandomStream*) {}
  void begin(std::size_t, std::size_t) {}
  HWY_INLINE Integers vector(Values steps, std::size_t) const {
    return truncate(hn::Add(steps, hn::Set(ValueTag(), 0.5f)));
  }
  HWY_INLINE std::uint32_t one(const Quantizer& q, float x, std::size_t) const {
    return reference::encode_element(q, x);
  }
};

struct StochasticCodes {
  explicit HWY_INLINE StochasticCodes(const RandomStream* stream) : run(*stream) {}
  HWY_INLINE void begin(std::size_t index, std::size_t n) { bytes = run.at(index, n); }
  HWY_INLINE Integers vector(Values steps, std::size_t at) const {
    const hn::Rebind<std::uint8_t, ValueTag> d;
    const Integers random = hn::PromoteTo(IntegerTag(), hn::LoadU(d, bytes + at));
    const Integers fine = round_lanes(hn::Mul(steps, hn::Set(ValueTag(), 256.0f)));
    return hn::ShiftRight<8>(hn::Add(fine, random));
  }
  HWY_INLINE std::uint32_t one(const Quantizer& q, float x, std::size_t at) const {
    return reference::encode_element(q, x, bytes[at]);
  }
  RandomRun<kBlock> run;
  const std::uint8_t* bytes = nullptr;
};

// Elements' distance above the minimum, in units.
struct Steps {
  Values minimum, inverse;
  explicit HWY_INLINE Steps(const Quantizer& q)
      : minimum(hn::Set(ValueTag(), q.minimum)), inverse(hn::Set(ValueTag(), q.inverse)) {}
  HWY_INLINE Values operator()(const float* x) const {
    return hn::Mul(hn::Sub(hn::LoadU(ValueTag(), x), minimum), inverse);
  }
};

#if HWY_ARCH_X86
// Codes of four vectors of elements as bytes, none above `largest`.
template <class Rounding>
HWY_INLINE ByteCodesVector four_vectors(const Steps& steps, const Rounding& rounding, const float* from, std::size_t at,
                                        std::uint8_t largest) {
  const Integers a = rounding.vector(steps(from), at);
  const Integers b = rounding.vector(steps(from + kValueLanes), at + kValueLanes);
  const Integers c = rounding.vector(steps(from + 2 * kValueLanes), at + 2 * kValueLanes);
  const Integers e = rounding.vector(steps(from + 3 * kValueLanes), at + 3 * kValueLanes);
  const auto codes = in_order(pack_unsigned(pack_words(a, b), pack_words(c, e)));
  return hn::Min(codes, hn::Set(UnsignedBytes(), largest));
}
#endif

// Calls use(bucket, begin, end), in order, for the parts into which buckets and blocks cut a slice.
template <class Rounding, class Use>
HWY_INLINE void each_part(MinmaxFormat format, const float* source, std::size_t n, std::byte* headers,
                          Rounding& rounding, Use use) {
  BucketsAhead buckets(format, source, n, headers);
  std::size_t bucket_end = 0;
  for (std::size_t block = 0; block < n; block += kBlock) {
    const std::size_t block_end = std::min(n, block + kBlock);
    rounding.begin(block, block_end - block);
    for (std::size_t at = block; at < block_end;) {
      if (at == bucket_end) bucket_end = buckets.next(at);
      const std::size_t end = std::min(bucket_end, block_end);
      use(buckets.current(), at, end);
      at = end;
    }
  }
}

// ---- Buckets of whole chunks: writes codes where they belong.

#if HWY_ARCH_X86
template <class Store, class Rounding>
class ChunkEncoder {
 public:
  HWY_INLINE ChunkEncoder(MinmaxFormat format, const float* source, std::size_t n, std::byte* target)
      : format_(format),
        source_(source),
        codes_(target + minmax_header_bytes(format, n)),
        limit_(target + minmax_encoded_bytes(format, n)),
        store_(format.bits) {}

  HWY_INLINE void encode(const Bucket& bucket, const Rounding& rounding, std::size_t begin, std::size_t end) {
    const auto bits = static_cast<std::size_t>(format_.bits);
    std::byte* to = codes_ + begin / 8 * bits;
    std::size_t i = begin;
    const std::size_t bytes = kChunk / 8 * bits;
    if (bucket.in_vectors) {
      const Steps steps(bucket.quantizer);
      for (; i + kChunk <= end && static_cast<std::size_t>(limit_ - to) >= bytes + Store::kSlack; i += kChunk) {
        encode_vectors<0>(steps, rounding, i, to);
        to += bytes;
      }
      for (; i + kChunk <= end; i += kChunk) {
        std::byte packed[kChunk + Store::kSlack];
        encode_vectors<0>(steps, rounding, i, packed);
        std::memcpy(to, packed, bytes);
        to += bytes;
      }
    }
    for (; i < end; i += kChunk, to += bytes) encode_slowly(bucket, rounding, i, std::min(end, i + kChunk), to);
  }

 private:
  template <std::size_t kFrom>
  HWY_INLINE void encode_vectors(const Steps& steps, const Rounding& rounding, std::size_t at, std::byte* to) const {
    if constexpr (kFrom < kChunk) {
      const auto largest = static_cast<std::uint8_t>((1 << format_.bits) - 1);
      const std::size_t place = (at + kFrom) % kBlock;
      store_.store(four_vectors(steps, rounding, source_ + at + kFrom, place, largest), to);
      encode_vectors<kFrom + 4 * kValueLanes>(steps, rounding, at, to + store_.bytes_per_vector());
    }
  }

  // At most a chunk, of a bucket of any kind, anywhere in the slice.
  void encode_slowly(const Bucket& bucket, const Rounding& rounding, std::size_t begin, std::size_t end,
                     std::byte* to) const {
    alignas(64) std::uint8_t codes[kChunk] = {};
    for (std::size_t i = begin; i < end; ++i) {
      codes[i - begin] = static_cast<std::uint8_t>(rounding.one(bucket.quantizer, source_[i], i % kBlock));
    }
    std::byte packed[kChunk + Store::kSlack];
    std::byte* part = packed;
    for (std::size_t i = 0; i < kChunk; i += 4 * kValueLanes, part += store_.bytes_per_vector()) {
      store_.store(hn::Load(UnsignedBytes(), codes + i), part);
    }
    std::memcpy(to, packed, ((end - begin) * static_cast<std::size_t>(format_.bits) + 7) / 8);
  }

  const MinmaxFormat format_;
  const float* const source_;
  std::byte* const codes_;
  std::byte* const limit_;
  const Store store_;
};

template <class Store, class Rounding>
HWY_INLINE void encode_chunks(MinmaxFormat format, const float* source, std::size_t n, std::byte* target,
                              const RandomStream* random) {
  Rounding rounding(random);
  ChunkEncoder<Store, Rounding> encoder(format, source, n, target);
  each_part(format, source, n, target, rounding,
            [&](const Bucket& bucket, std::size_t begin, std::size_t end)
                HWY_ATTR { encoder.encode(bucket, rounding, begin, end); });
}
#endif

// ---- Buckets of any size: packs each code from a byte.

template <class Rounding>
HWY_INLINE void encode_bytes(const Bucket& bucket, const Rounding& rounding, const float* from, std::size_t n,
                             std::size_t at, std::uint8_t* codes) {
  std::size_t i = 0;
  if (bucket.in_vectors) {
    const Steps steps(bucket.quantizer);
#if HWY_ARCH_X86
    const auto largest = static_cast<std::uint8_t>(bucket.quantizer.levels);
    for (; i + 4 * kValueLanes <= n; i += 4 * kValueLanes) {
      hn::StoreU(four_vectors(steps, rounding, from + i, at + i, largest), UnsignedBytes(), codes + i);
    }
#else
    const hn::Rebind<std::uint8_t, ValueTag> d;
    const Integers largest = hn::Set(IntegerTag(), static_cast<std::int32_t>(bucket.quantizer.levels));
    for (; i + kValueLanes <= n; i += kValueLanes) {
      hn::StoreU(hn::DemoteTo(d, hn::Min(rounding.vector(steps(from + i), at + i), largest)), d, codes + i);
    }
#endif
  }
  for (; i < n; ++i) codes[i] = static_cast<std::uint8_t>(rounding.one(bucket.quantizer, from[i], at + i));
}

template <class Rounding>
HWY_INLINE void encode_through_bytes(MinmaxFormat format, const float* source, std::size_t n, std::byte* target,
                                     const RandomStream* random) {
  const auto* const limit = reinterpret_cast<const std::uint8_t*>(target + minmax_encoded_bytes(format, n));
  auto* const packed = reinterpret_cast<std::uint8_t*>(target + minmax_header_bytes(format, n));
  const auto bits = static_cast<std::size_t>(format.bits);
  alignas(64) std::uint8_t codes[kBlock];
  Rounding rounding(random);
  each_part(format, source, n, target, rounding,
            [&](const Bucket& bucket, std::size_t begin, std::size_t end) HWY_ATTR {
              const std::size_t at = begin % kBlock;
              if (bits == 8) {
                return encode_bytes(bucket, rounding, source + begin, end - begin, at, packed + begin);
              }
              encode_bytes(bucket, rounding, source + begin, end - begin, at, codes + at);
              const std::size_t count = at + (end - begin);
              if (count < kBlock && end < n) return;  // more of the block follows
              std::memset(codes + count, 0, kBlock - count);
              pack_codes(format.bits, codes, count, packed + (begin - at) / 8 * bits, limit);
            });
}

// ---- 16 bits.

template <class Rounding>
HWY_INLINE void encode_words(MinmaxFormat format, const float* source, std::size_t n, std::byte* target,
                             const RandomStream* random) {
  std::byte* const codes = target + minmax_header_bytes(format, n);
  Rounding rounding(random);
  each_part(format, source, n, target, rounding,
            [&](const Bucket& bucket, std::size_t begin, std::size_t end) HWY_ATTR {
              const hn::Rebind<std::uint16_t, ValueTag> d;
              std::size_t i = begin;
              if (bucket.in_vectors) {
                const Steps steps(bucket.quantizer);
                for (; i + kValueLanes <= end; i += kValueLanes) {
                  const Integers words = rounding.vector(steps(source + i), i % kBlock);
                  // Demoting turns everything above D, 65535, into D.
                  hn::StoreU(hn::DemoteTo(d, words), d, reinterpret_cast<std::uint16_t*>(codes) + i);
                }
              }
              for (; i < end; ++i) {
                const std::uint32_t word = rounding.one(bucket.quantizer, source[i], i % kBlock);
                std::memcpy(codes + 2 * i, &word, 2);
              }
            });
}

// ----

template <class Rounding>
HWY_INLINE void encode_slice(MinmaxFormat format, const float* source, std::size_t n, std::byte* target,
                             const RandomStream* random) {
  if (format.bits == 16) return encode_words<Rounding>(format, source, n, target, random);
#if HWY_ARCH_X86
  if (format.bucket_size % kChunk == 0) {
    if (format.bits == 8) return encode_chunks<ByteStore, Rounding>(format, source, n, target, random);
#if QCCL_HAVE_BIT_WINDOWS
    if (format.bits == 4) return encode_chunks<NibbleStore, Rounding>(format, source, n, target, random);
    return encode_chunks<BitStore, Rounding>(format, source, n, target, random);
#endif
  }
#endif
  encode_through_bytes<Rounding>(format, source, n, target, random);
}

void minmax_encode(MinmaxFormat format, const float* source, std::size_t n, std::byte* target,
                   const RandomStream* random) {
  if (random == nullptr) return encode_slice<HalfUpCodes>(format, source, n, target, random);
  encode_slice<StochasticCodes>(format, source, n, target, random);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
