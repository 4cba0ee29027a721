// minmax.h in vectors. Per target.
//
// A slice is worked off in blocks of kBlock elements, cut where buckets end. Codes that minmax_codes-inl.h
// has a layout for are written and read in place; others go through a block of one byte each (pack-inl.h).

#if defined(QCCL_KERNELS_MINMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_MINMAX_INL_H_
#undef QCCL_KERNELS_MINMAX_INL_H_
#else
#define QCCL_KERNELS_MINMAX_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kernels/minmax_codes-inl.h"
#include "kernels/minmax_reference.h"
#include "kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using reference::BucketHeader;
using reference::BucketKind;

inline constexpr std::size_t kBlock = 1024;  // 4 KiB of floats: stays in L1 between two passes
static_assert(kBlock % kCodesPerVector == 0);

// ---- One pass over a bucket: extremes, and whether all is finite.

inline bool all_finite(const float* source, std::size_t n) {
  bool finite = true;
  for (std::size_t i = 0; i < n; ++i) finite = std::isfinite(source[i]) && finite;
  return finite;
}

// Running minimum, maximum and sum of one vector in each row. The sum is not finite if an element
// is not; the reverse is not true, so it only tells when to look closely.
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

HWY_INLINE BucketHeader header_of(const float* source, std::size_t n, float levels) {
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
  if (!std::isfinite(sum) && !all_finite(source, n)) return reference::invalid_header();
  return reference::make_header(minimum, maximum, levels);
}

// ---- Encoding the elements of one bucket.

// The rule of encode_element() for buckets that are not wide; clamping to D is left to storing.
struct EncodeLanes {
  Values minimum, inverse, half;
  explicit HWY_INLINE EncodeLanes(const Quantizer& q)
      : minimum(hn::Set(ValueTag(), q.minimum)),
        inverse(hn::Set(ValueTag(), q.inverse)),
        half(hn::Set(ValueTag(), 0.5f)) {}
  HWY_INLINE Integers operator()(const float* x) const {
    return truncate(hn::Add(hn::Mul(hn::Sub(hn::LoadU(ValueTag(), x), minimum), inverse), half));
  }
};

template <class Codes>
HWY_INLINE void encode_run(const Quantizer& q, const float* source, std::size_t n, std::byte* codes) {
  std::size_t i = 0;
  if (q.kind == BucketKind::normal) {
    const EncodeLanes encode(q);
    const std::size_t lanes = hn::Lanes(ValueTag());
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      Codes::store(encode(source + i), encode(source + i + lanes), encode(source + i + 2 * lanes),
                   encode(source + i + 3 * lanes), static_cast<std::uint32_t>(q.levels), codes + i * Codes::kBits / 8);
    }
  }
  for (; i < n; ++i) Codes::store_one(codes, i, reference::encode_element(q, source[i]));
}

// ---- Decoding the elements of one bucket.

// What becomes of a decoded value: the value itself,
struct Assign {
  template <int kSlot>
  HWY_INLINE Values take(Values y, std::size_t) {
    return y;
  }
  HWY_INLINE float take(float y, std::size_t) { return y; }
  HWY_INLINE void end(float*, std::size_t) {}
  HWY_INLINE Assign from(std::size_t) const { return *this; }
};

// or its sum with the addend. Sums that are NaN are made canonical at the end of a run that has one. Each
// slot remembers by itself whether it saw one, so that they need not wait for each other.
struct AddTo {
  const float* addend;
  Values zeros0 = hn::Zero(ValueTag());  // 0 * sum: NaN where a sum was not finite
  Values zeros1 = hn::Zero(ValueTag());
  Values zeros2 = hn::Zero(ValueTag());
  Values zeros3 = hn::Zero(ValueTag());

  template <int kSlot>
  HWY_INLINE Values take(Values y, std::size_t index) {
    const ValueTag d;
    const Values sum = hn::Add(hn::LoadU(d, addend + index), y);
    Values& zeros = kSlot == 0 ? zeros0 : kSlot == 1 ? zeros1 : kSlot == 2 ? zeros2 : zeros3;
    zeros = hn::MulAdd(sum, hn::Zero(d), zeros);
    return sum;
  }
  HWY_INLINE float take(float y, std::size_t index) { return reference::add_canonical(addend[index], y); }
  HWY_INLINE void end(float* target, std::size_t n) {
    const ValueTag d;
    const Values zeros = hn::Add(hn::Add(zeros0, zeros1), hn::Add(zeros2, zeros3));
    if (hn::AllFalse(d, hn::IsNaN(zeros))) return;
    for (std::size_t i = 0; i < n; ++i) target[i] = target[i] != target[i] ? canonical_nan() : target[i];
  }
  HWY_INLINE AddTo from(std::size_t index) const { return AddTo{addend + index}; }
};

template <class Codes, class Finish>
HWY_INLINE void decode_run(const Quantizer& q, const std::byte* codes, std::size_t n, float* target, Finish finish) {
  std::size_t i = 0;
  if (q.kind == BucketKind::normal) {
    const ValueTag d;
    const std::size_t lanes = hn::Lanes(d);
    const typename Codes::Decoder decode(q);
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      const std::size_t at[] = {i, i + lanes, i + 2 * lanes, i + 3 * lanes};
      const Values y0 = finish.template take<0>(decode(codes, at[0]), at[0]);
      const Values y1 = finish.template take<1>(decode(codes, at[1]), at[1]);
      const Values y2 = finish.template take<2>(decode(codes, at[2]), at[2]);
      const Values y3 = finish.template take<3>(decode(codes, at[3]), at[3]);
      hn::StoreU(y0, d, target + at[0]);
      hn::StoreU(y1, d, target + at[1]);
      hn::StoreU(y2, d, target + at[2]);
      hn::StoreU(y3, d, target + at[3]);
    }
    for (; i + lanes <= n; i += lanes) hn::StoreU(finish.template take<0>(decode(codes, i), i), d, target + i);
    finish.end(target, i);
  }
  for (; i < n; ++i) target[i] = finish.take(reference::decode_element(q, Codes::load_one(codes, i)), i);
}

// ---- Whole slices.

// Headers and quantizers of a slice's buckets, each made one bucket ahead: the chain of reductions and divisions
// that ends in a quantizer then overlaps with the encoding of the bucket before.
class BucketAhead {
 public:
  HWY_INLINE BucketAhead(MinmaxFormat format, const float* source, std::size_t n, std::byte* headers)
      : levels_(reference::largest_code(format.bits)),
        bucket_size_(format.bucket_size),
        source_(source),
        left_(n),
        headers_(headers) {
    prepare();
  }
  // The quantizer of the next bucket, whose header it writes. The bucket begins at `begin`; sets its end.
  HWY_INLINE Quantizer next(std::size_t begin, std::size_t& end) {
    const Quantizer quantizer = quantizer_;
    std::memcpy(headers_, &header_, sizeof(header_));
    headers_ += kBucketHeaderBytes;
    end = begin + size_;
    source_ += size_;
    left_ -= size_;
    prepare();
    return quantizer;
  }

 private:
  HWY_INLINE void prepare() {
    size_ = std::min(left_, bucket_size_);
    if (size_ == 0) return;
    header_ = header_of(source_, size_, levels_);
    quantizer_ = reference::make_quantizer(header_, levels_);
  }

  const float levels_;
  const std::size_t bucket_size_;
  const float* source_;
  std::size_t left_;
  std::byte* headers_;
  std::size_t size_ = 0;
  BucketHeader header_;
  Quantizer quantizer_;
};

template <class Codes>
HWY_INLINE void encode_slice(MinmaxFormat format, const float* source, std::size_t n, std::byte* target) {
  const std::byte* const limit = target + minmax_encoded_bytes(format, n);
  std::byte* packed = target + minmax_header_bytes(format, n);
  const bool in_place = format.bits == Codes::kBits;
  alignas(64) std::byte block_codes[kBlock * Codes::kBits / 8];
  BucketAhead buckets(format, source, n, target);
  Quantizer quantizer;
  std::size_t bucket_end = 0;
  for (std::size_t block = 0; block < n; block += kBlock) {
    const std::size_t block_end = std::min(n, block + kBlock);
    std::byte* codes = in_place ? packed + block * Codes::kBits / 8 : block_codes;
    for (std::size_t at = block; at < block_end;) {
      if (at == bucket_end) quantizer = buckets.next(at, bucket_end);
      const std::size_t end = std::min(bucket_end, block_end);
      encode_run<Codes>(quantizer, source + at, end - at, codes + (at - block) * Codes::kBits / 8);
      at = end;
    }
    if (in_place) continue;
    const std::size_t count = block_end - block;
    if (count < kBlock) std::memset(block_codes + count, 0, kBlock - count);
    pack_codes(format.bits, reinterpret_cast<const std::uint8_t*>(block_codes), count,
               reinterpret_cast<std::uint8_t*>(packed) + block / 8 * static_cast<std::size_t>(format.bits),
               reinterpret_cast<const std::uint8_t*>(limit));
  }
}

template <class Codes, class Finish>
HWY_INLINE void decode_slice(MinmaxFormat format, const std::byte* source, std::size_t n, float* target,
                             Finish finish) {
  const float levels = reference::largest_code(format.bits);
  const std::byte* const limit = source + minmax_encoded_bytes(format, n);
  const std::byte* packed = source + minmax_header_bytes(format, n);
  const bool in_place = format.bits == Codes::kBits;
  alignas(64) std::byte block_codes[kBlock * Codes::kBits / 8];
  Quantizer quantizer;
  std::size_t bucket_end = 0;
  for (std::size_t block = 0; block < n; block += kBlock) {
    const std::size_t block_end = std::min(n, block + kBlock);
    const std::byte* codes = in_place ? packed + block * Codes::kBits / 8 : block_codes;
    if (!in_place) {
      unpack_codes(format.bits,
                   reinterpret_cast<const std::uint8_t*>(packed) + block / 8 * static_cast<std::size_t>(format.bits),
                   reinterpret_cast<const std::uint8_t*>(limit), block_end - block,
                   reinterpret_cast<std::uint8_t*>(block_codes));
    }
    for (std::size_t at = block; at < block_end;) {
      if (at == bucket_end) {
        bucket_end = std::min<std::size_t>(n, at + format.bucket_size);
        BucketHeader header;
        std::memcpy(&header, source, sizeof(header));
        source += kBucketHeaderBytes;
        quantizer = reference::make_quantizer(header, levels);
      }
      const std::size_t end = std::min(bucket_end, block_end);
      decode_run<Codes>(quantizer, codes + (at - block) * Codes::kBits / 8, end - at, target + at, finish.from(at));
      at = end;
    }
  }
}

// Calls use(codes) with the layout for the format.
template <class Use>
HWY_INLINE void with_codes(MinmaxFormat format, Use use) {
  if (format.bits == 16) return use(WordCodes());
#if HWY_ARCH_X86 && HWY_MAX_BYTES >= 32
  if (format.bits == 4 && format.bucket_size % 2 == 0) return use(NibbleCodes());
#endif
  use(ByteCodes());
}

void minmax_encode(MinmaxFormat format, const float* source, std::size_t n, std::byte* target) {
  with_codes(format, [=](auto codes) HWY_ATTR { encode_slice<decltype(codes)>(format, source, n, target); });
}

void minmax_decode(MinmaxFormat format, const std::byte* source, float* target, std::size_t n) {
  with_codes(format, [=](auto codes) HWY_ATTR { decode_slice<decltype(codes)>(format, source, n, target, Assign()); });
}

void minmax_decode_add(MinmaxFormat format, const std::byte* source, const float* addend, float* target,
                       std::size_t n) {
  with_codes(format,
             [=](auto codes) HWY_ATTR { decode_slice<decltype(codes)>(format, source, n, target, AddTo{addend}); });
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
