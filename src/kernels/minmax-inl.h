// minmax.h in vectors. Per target.
//
// A slice is worked off in blocks of kBlock elements, cut where buckets end. Codes of 8 and 16 bits
// are written and read in place; narrower ones go through a block of one byte each (pack-inl.h).

#if defined(QCCL_KERNELS_MINMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_KERNELS_MINMAX_INL_H_
#undef QCCL_KERNELS_MINMAX_INL_H_
#else
#define QCCL_KERNELS_MINMAX_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kernels/minmax_reference.h"
#include "kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using ValueTag = hn::ScalableTag<float>;
using IntegerTag = hn::RebindToSigned<ValueTag>;
using Values = hn::Vec<ValueTag>;
using Integers = hn::Vec<IntegerTag>;
using reference::BucketHeader;
using reference::BucketKind;
using reference::Quantizer;

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

// Integers of values that are in [0, 65536): without the checks for what does not fit.
HWY_INLINE Integers truncate(Values v) {
#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64
  return Integers{_mm512_cvttps_epi32(v.raw)};
#elif HWY_ARCH_X86 && HWY_MAX_BYTES == 32
  return Integers{_mm256_cvttps_epi32(v.raw)};
#elif HWY_ARCH_X86
  return Integers{_mm_cvttps_epi32(v.raw)};
#else
  return hn::ConvertTo(IntegerTag(), v);
#endif
}

// Stores four vectors of codes as bytes, in order.
HWY_INLINE void store_codes(Integers a, Integers b, Integers c, Integers e, std::byte* to) {
#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64
  const __m512i bytes = _mm512_packus_epi16(_mm512_packs_epi32(a.raw, b.raw), _mm512_packs_epi32(c.raw, e.raw));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, bytes));
#elif HWY_ARCH_X86 && HWY_MAX_BYTES == 32
  const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(a.raw, b.raw), _mm256_packs_epi32(c.raw, e.raw));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(bytes, order));
#elif HWY_ARCH_X86
  const __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(a.raw, b.raw), _mm_packs_epi32(c.raw, e.raw));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
#else
  const hn::Rebind<std::uint8_t, ValueTag> d;
  const std::size_t lanes = hn::Lanes(d);
  auto* bytes = reinterpret_cast<std::uint8_t*>(to);
  hn::StoreU(hn::DemoteTo(d, a), d, bytes);
  hn::StoreU(hn::DemoteTo(d, b), d, bytes + lanes);
  hn::StoreU(hn::DemoteTo(d, c), d, bytes + 2 * lanes);
  hn::StoreU(hn::DemoteTo(d, e), d, bytes + 3 * lanes);
#endif
}

HWY_INLINE void store_codes_16(Integers codes, std::byte* to) {
  const hn::Rebind<std::uint16_t, ValueTag> d;
  hn::StoreU(hn::DemoteTo(d, codes), d, reinterpret_cast<std::uint16_t*>(to));
}

// The rule of encode_element() for buckets that are not wide.
struct EncodeLanes {
  Values minimum, inverse, levels, half;
  explicit HWY_INLINE EncodeLanes(const Quantizer& q)
      : minimum(hn::Set(ValueTag(), q.minimum)),
        inverse(hn::Set(ValueTag(), q.inverse)),
        levels(hn::Set(ValueTag(), q.levels)),
        half(hn::Set(ValueTag(), 0.5f)) {}
  HWY_INLINE Integers operator()(const float* x) const {
    const Values scaled = hn::Mul(hn::Sub(hn::LoadU(ValueTag(), x), minimum), inverse);
    return truncate(hn::Add(hn::Min(scaled, levels), half));
  }
};

template <std::size_t kCodeBytes>
HWY_INLINE void store_code(std::byte* codes, std::size_t index, std::uint32_t code) {
  std::memcpy(codes + index * kCodeBytes, &code, kCodeBytes);
}

template <std::size_t kCodeBytes>
HWY_INLINE void encode_run(const Quantizer& q, const float* source, std::size_t n, std::byte* codes) {
  std::size_t i = 0;
  if (q.kind == BucketKind::normal) {
    const EncodeLanes encode(q);
    const std::size_t lanes = hn::Lanes(ValueTag());
    if constexpr (kCodeBytes == 1) {
      for (; i + 4 * lanes <= n; i += 4 * lanes) {
        store_codes(encode(source + i), encode(source + i + lanes), encode(source + i + 2 * lanes),
                    encode(source + i + 3 * lanes), codes + i);
      }
    } else {
      for (; i + lanes <= n; i += lanes) store_codes_16(encode(source + i), codes + i * kCodeBytes);
    }
  }
  for (; i < n; ++i) store_code<kCodeBytes>(codes, i, reference::encode_element(q, source[i]));
}

// ---- Decoding the elements of one bucket.

template <std::size_t kCodeBytes>
HWY_INLINE Integers load_codes(const std::byte* codes) {
  using Code = std::conditional_t<kCodeBytes == 1, std::uint8_t, std::uint16_t>;
  const hn::Rebind<Code, ValueTag> d;
  return hn::PromoteTo(IntegerTag(), hn::LoadU(d, reinterpret_cast<const Code*>(codes)));
}

template <std::size_t kCodeBytes>
HWY_INLINE std::uint32_t load_code(const std::byte* codes, std::size_t index) {
  std::uint32_t code = 0;
  std::memcpy(&code, codes + index * kCodeBytes, kCodeBytes);
  return code;
}

// What becomes of a decoded value: the value itself,
struct Assign {
  HWY_INLINE Values operator()(Values y, std::size_t) const { return y; }
  HWY_INLINE float operator()(float y, std::size_t) const { return y; }
  HWY_INLINE Assign from(std::size_t) const { return *this; }
};

// or its sum with the addend.
struct AddTo {
  const float* addend;
  HWY_INLINE Values operator()(Values y, std::size_t index) const {
    const ValueTag d;
    const Values sum = hn::Add(hn::LoadU(d, addend + index), y);
    return hn::IfThenElse(hn::IsNaN(sum), hn::Set(d, canonical_nan()), sum);
  }
  HWY_INLINE float operator()(float y, std::size_t index) const { return reference::add_canonical(addend[index], y); }
  HWY_INLINE AddTo from(std::size_t index) const { return {addend + index}; }
};

template <std::size_t kCodeBytes, class Finish>
HWY_INLINE void decode_run(const Quantizer& q, const std::byte* codes, std::size_t n, float* target, Finish finish) {
  std::size_t i = 0;
  if (q.kind == BucketKind::normal) {
    const ValueTag d;
    const std::size_t lanes = hn::Lanes(d);
    const Values minimum = hn::Set(d, q.minimum);
    const Values unit = hn::Set(d, q.unit);
    const auto decode = [&](std::size_t at) HWY_ATTR {
      const Values code = hn::ConvertTo(d, load_codes<kCodeBytes>(codes + at * kCodeBytes));
      return finish(hn::Add(minimum, hn::Mul(code, unit)), at);
    };
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const Values first = decode(i);
      const Values second = decode(i + lanes);
      hn::StoreU(first, d, target + i);
      hn::StoreU(second, d, target + i + lanes);
    }
    for (; i + lanes <= n; i += lanes) hn::StoreU(decode(i), d, target + i);
  }
  for (; i < n; ++i) target[i] = finish(reference::decode_element(q, load_code<kCodeBytes>(codes, i)), i);
}

// ---- Whole slices.

template <std::size_t kCodeBytes>
HWY_INLINE void encode_slice(MinmaxFormat format, const float* source, std::size_t n, std::byte* target) {
  const float levels = reference::largest_code(format.bits);
  const std::byte* const limit = target + minmax_encoded_bytes(format, n);
  std::byte* packed = target + minmax_header_bytes(format, n);
  const bool in_place = format.bits == 8 * static_cast<int>(kCodeBytes);
  alignas(64) std::byte block_codes[kBlock * kCodeBytes];
  Quantizer quantizer;
  std::size_t bucket_end = 0;
  for (std::size_t block = 0; block < n; block += kBlock) {
    const std::size_t block_end = std::min(n, block + kBlock);
    std::byte* codes = in_place ? packed + block * kCodeBytes : block_codes;
    for (std::size_t at = block; at < block_end;) {
      if (at == bucket_end) {
        bucket_end = std::min<std::size_t>(n, at + format.bucket_size);
        const BucketHeader header = header_of(source + at, bucket_end - at, levels);
        std::memcpy(target, &header, sizeof(header));
        target += kBucketHeaderBytes;
        quantizer = reference::make_quantizer(header, levels);
      }
      const std::size_t end = std::min(bucket_end, block_end);
      encode_run<kCodeBytes>(quantizer, source + at, end - at, codes + (at - block) * kCodeBytes);
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

template <std::size_t kCodeBytes, class Finish>
HWY_INLINE void decode_slice(MinmaxFormat format, const std::byte* source, std::size_t n, float* target,
                             Finish finish) {
  const float levels = reference::largest_code(format.bits);
  const std::byte* const limit = source + minmax_encoded_bytes(format, n);
  const std::byte* packed = source + minmax_header_bytes(format, n);
  const bool in_place = format.bits == 8 * static_cast<int>(kCodeBytes);
  alignas(64) std::byte block_codes[kBlock * kCodeBytes];
  Quantizer quantizer;
  std::size_t bucket_end = 0;
  for (std::size_t block = 0; block < n; block += kBlock) {
    const std::size_t block_end = std::min(n, block + kBlock);
    const std::byte* codes = in_place ? packed + block * kCodeBytes : block_codes;
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
      decode_run<kCodeBytes>(quantizer, codes + (at - block) * kCodeBytes, end - at, target + at, finish.from(at));
      at = end;
    }
  }
}

void minmax_encode(MinmaxFormat format, const float* source, std::size_t n, std::byte* target) {
  if (format.bits == 16) return encode_slice<2>(format, source, n, target);
  encode_slice<1>(format, source, n, target);
}

void minmax_decode(MinmaxFormat format, const std::byte* source, float* target, std::size_t n) {
  if (format.bits == 16) return decode_slice<2>(format, source, n, target, Assign());
  decode_slice<1>(format, source, n, target, Assign());
}

void minmax_decode_add(MinmaxFormat format, const std::byte* source, const float* addend, float* target,
                       std::size_t n) {
  if (format.bits == 16) return decode_slice<2>(format, source, n, target, AddTo{addend});
  decode_slice<1>(format, source, n, target, AddTo{addend});
}

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
