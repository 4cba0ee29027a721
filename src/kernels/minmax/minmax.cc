#include "kernels/minmax/minmax.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/minmax/minmax.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/minmax/minmax_reference.h"
#include "kernels/reduce/reduce_reference.h"
#include "kernels/simd_dispatch.h"
#if !QCCL_SCALAR
#include "kernels/minmax/minmax_encode-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

#if QCCL_SCALAR

inline reference::BucketHeader header_of(const float* bucket, std::size_t n, float levels) {
  if (!reference::all_finite(bucket, n)) return reference::invalid_header();
  const auto [minimum, maximum] = std::minmax_element(bucket, bucket + n);
  return reference::make_header(*minimum, *maximum, levels);
}

void minmax_encode(MinmaxFormat format, const float* source, std::size_t n, std::byte* target,
                   const RandomStream* random) {
  const float levels = reference::largest_code(format.bits);
  BitWriter codes(target + minmax_header_bytes(format, n), format.bits);
  for (std::size_t begin = 0; begin < n; begin += format.bucket_size, target += kBucketHeaderBytes) {
    const std::size_t end = std::min<std::size_t>(n, begin + format.bucket_size);
    const reference::BucketHeader header = header_of(source + begin, end - begin, levels);
    std::memcpy(target, &header, sizeof(header));
    const reference::Quantizer quantizer = reference::make_quantizer(header, levels);
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t code =
          random == nullptr ? reference::encode_element(quantizer, source[i])
                            : reference::encode_element(quantizer, source[i],
                                                        reference::random_byte(*random, random->first_element + i));
      codes.put(code);
    }
  }
  codes.end();
}

void minmax_decode(MinmaxFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  const float levels = reference::largest_code(format.bits);
  BitReader codes(source + minmax_header_bytes(format, n), format.bits);
  for (std::size_t begin = 0; begin < n; begin += format.bucket_size, source += kBucketHeaderBytes) {
    const std::size_t end = std::min<std::size_t>(n, begin + format.bucket_size);
    reference::BucketHeader header;
    std::memcpy(&header, source, sizeof(header));
    const reference::Quantizer quantizer = reference::make_quantizer(header, levels);
    for (std::size_t i = begin; i < end; ++i) {
      const float y = reference::decode_element(quantizer, static_cast<std::uint32_t>(codes.get()));
      reference::finish(y, addend, target, i);
    }
  }
}

#else

// ---- Decoding; minmax_encode-inl.h encodes.

inline constexpr std::size_t kDecodeBlock = 4096;  // elements after which sums are checked for NaN

// minimum + code * unit, in two roundings.
struct UnitLine {
  Values minimum, unit;
  explicit HWY_INLINE UnitLine(const Quantizer& q)
      : minimum(hn::Set(ValueTag(), q.minimum)), unit(hn::Set(ValueTag(), q.unit)) {}
  HWY_INLINE Values operator()(Integers codes) const {
    return hn::Add(minimum, hn::Mul(hn::ConvertTo(ValueTag(), codes), unit));
  }
};

// Elements [begin, end) of one bucket of any kind.
template <class Load, class Finish>
HWY_INLINE void decode_part(const RunDecoder<Load>& decoder, const Quantizer& quantizer, std::size_t begin,
                            std::size_t end, float* target, Finish& finish) {
  if (quantizer.kind == BucketKind::normal) return decoder.decode(UnitLine(quantizer), begin, end, target, finish);
  decoder.each_code(begin, end, [&](std::size_t at, Integers integers) HWY_ATTR {
    alignas(64) std::int32_t codes[kValueLanes];
    hn::Store(integers, IntegerTag(), codes);
    for (std::size_t lane = 0; lane < kValueLanes && at + lane < end; ++lane) {
      const auto code = static_cast<std::uint32_t>(codes[lane]);
      finish.store(reference::decode_element(quantizer, code), target, at + lane);
    }
  });
}

// The quantizers of a slice's buckets, in order.
class BucketReader {
 public:
  HWY_INLINE BucketReader(MinmaxFormat format, const std::byte* headers)
      : levels_(reference::largest_code(format.bits)), bucket_size_(format.bucket_size), headers_(headers) {}

  // The quantizer of the bucket that contains `at`: the bucket of the previous call, or the next.
  HWY_INLINE const Quantizer& at(std::size_t at) {
    if (at < end_) return quantizer_;
    BucketHeader header;
    std::memcpy(&header, headers_, sizeof(header));
    headers_ += kBucketHeaderBytes;
    end_ += bucket_size_;
    quantizer_ = reference::make_quantizer(header, levels_);
    return quantizer_;
  }
  std::size_t end() const { return end_; }

 private:
  const float levels_;
  const std::size_t bucket_size_;
  const std::byte* headers_;
  std::size_t end_ = 0;
  Quantizer quantizer_;
};

// Decodes codes where they lie.
template <class Load, class Finish>
HWY_INLINE void decode_in_place(MinmaxFormat format, const std::byte* source, std::size_t n, float* target,
                                Finish finish) {
  const std::byte* const codes = source + minmax_header_bytes(format, n);
  const RunDecoder<Load> decoder(Load(format.bits), format.bits, codes, packed_bytes(format.bits, n), n);
  BucketReader buckets(format, source);
  for (std::size_t block = 0; block < n; block += kDecodeBlock) {
    const std::size_t block_end = std::min(n, block + kDecodeBlock);
    for (std::size_t at = block; at < block_end;) {
      const Quantizer& quantizer = buckets.at(at);
      const std::size_t end = std::min(buckets.end(), block_end);
      decode_part(decoder, quantizer, at, end, target, finish);
      at = end;
    }
    finish.end(target, block, block_end);
  }
}

// Unpacks each code to a byte first.
template <class Finish>
HWY_INLINE void decode_through_bytes(MinmaxFormat format, const std::byte* source, std::size_t n, float* target,
                                     Finish finish) {
  const auto* const limit = reinterpret_cast<const std::uint8_t*>(source + minmax_encoded_bytes(format, n));
  const auto* packed = reinterpret_cast<const std::uint8_t*>(source + minmax_header_bytes(format, n));
  alignas(64) std::uint8_t spread[kDecodeBlock];
  BucketReader buckets(format, source);
  for (std::size_t block = 0; block < n; block += kDecodeBlock) {
    const std::size_t count = std::min(kDecodeBlock, n - block);
    unpack_codes(format.bits, packed, limit, count, spread);
    packed += kDecodeBlock / 8 * static_cast<std::size_t>(format.bits);
    const RunDecoder<ByteLoad<false>> decoder(ByteLoad<false>(8), 8, reinterpret_cast<const std::byte*>(spread), count,
                                              count);
    Finish from_here = finish.from(block);
    for (std::size_t at = 0; at < count;) {
      const Quantizer& quantizer = buckets.at(block + at);
      const std::size_t end = std::min(count, buckets.end() - block);
      decode_part(decoder, quantizer, at, end, target + block, from_here);
      at = end;
    }
    from_here.end(target + block, 0, count);
  }
}

template <class Finish>
HWY_NOINLINE void decode_slice(MinmaxFormat format, const std::byte* source, const float* addend, float* target,
                               std::size_t n) {
  const Finish finish(addend);
  if (format.bits == 16) return decode_in_place<WordLoad>(format, source, n, target, finish);
  if (format.bits == 8) return decode_in_place<ByteLoad<false>>(format, source, n, target, finish);
#if QCCL_HAVE_BIT_WINDOWS
  if (format.bucket_size % kValueLanes == 0) {
    if (format.bits == 4) return decode_in_place<NibbleLoad<false>>(format, source, n, target, finish);
    return decode_in_place<BitLoad<false>>(format, source, n, target, finish);
  }
#endif
  decode_through_bytes(format, source, n, target, finish);
}

void minmax_decode(MinmaxFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  if (addend == nullptr) return decode_slice<Assign>(format, source, addend, target, n);
  decode_slice<AddTo>(format, source, addend, target, n);
}

#endif

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {
namespace {

HWY_EXPORT(minmax_encode);
HWY_EXPORT(minmax_decode);

// ---- 9..15 and 17..31 bits: the layout of minmax.h and the same rule in double, one element at a time, without a
// promise of speed.
//
// With D = 2^bits - 1 and every operation in double, rounded to nearest even:
//
//   unit = (maximum - minimum) / D rounded to float32, at least 2^-126
//   code = floor(min((x - minimum) / unit, D) + r), r = 0.5, or (byte + 0.5) / 256 with a random byte
//   y    = minimum + code * unit, at most FLT_MAX in magnitude, rounded to float32
//
// A minimum of -0 counts as +0. A bucket with an element that is not finite has the header {NaN, NaN}, zero codes, and
// decodes to NaN; so does any other header that is not finite.
//
// Error: |x - y| <= unit / 2 + 3 ulp(max |x|), stochastic unit + 3 ulp(max |x|): 2 ulp if rounding made the unit too
// small for D units to reach the maximum, 1 for the rounding of y.

using reference::BucketHeader;

double largest_of(int bits) { return std::ldexp(1.0, bits) - 1; }

BucketHeader header_of(const float* bucket, std::size_t n, int bits) {
  if (!reference::all_finite(bucket, n)) return reference::invalid_header();
  const auto [minimum, maximum] = std::minmax_element(bucket, bucket + n);
  const double range = static_cast<double>(*maximum) - static_cast<double>(*minimum);
  const auto unit = static_cast<float>(range / largest_of(bits));
  return {std::max(unit, reference::kSmallestUnit), *minimum + 0.0f};
}

bool is_finite(BucketHeader header) { return std::isfinite(header.unit) && std::isfinite(header.minimum); }

void decode_in_double(MinmaxFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  constexpr double kMost = std::numeric_limits<float>::max();
  BitReader codes(source + minmax_header_bytes(format, n), format.bits);
  for (std::size_t begin = 0; begin < n; begin += format.bucket_size, source += kBucketHeaderBytes) {
    const std::size_t end = std::min<std::size_t>(n, begin + format.bucket_size);
    BucketHeader header;
    std::memcpy(&header, source, sizeof(header));
    const bool valid = is_finite(header);
    for (std::size_t i = begin; i < end; ++i) {
      const auto code = static_cast<double>(codes.get());
      const double y = static_cast<double>(header.minimum) + code * static_cast<double>(header.unit);
      reference::finish(valid ? static_cast<float>(std::clamp(y, -kMost, kMost)) : canonical_nan(), addend, target, i);
    }
  }
}

void encode_in_double(MinmaxFormat format, const float* source, std::size_t n, std::byte* target,
                      const RandomStream* random) {
  const double largest = largest_of(format.bits);
  BitWriter codes(target + minmax_header_bytes(format, n), format.bits);
  std::uint8_t bytes[1 << 16];  // a bucket's random ones
  for (std::size_t begin = 0; begin < n; begin += format.bucket_size, target += kBucketHeaderBytes) {
    const std::size_t end = std::min<std::size_t>(n, begin + format.bucket_size);
    const BucketHeader header = header_of(source + begin, end - begin, format.bits);
    std::memcpy(target, &header, sizeof(header));
    const bool valid = is_finite(header);
    if (random != nullptr) {
      RandomStream stream = *random;
      stream.first_element += begin;
      random_bytes(stream, end - begin, bytes);
    }
    for (std::size_t i = begin; i < end; ++i) {
      const double threshold = random == nullptr ? 0.5 : (bytes[i - begin] + 0.5) / 256;
      const double offset = static_cast<double>(source[i]) - static_cast<double>(header.minimum);
      const double steps = std::min(offset / static_cast<double>(header.unit), largest);
      codes.put(valid ? static_cast<std::uint64_t>(steps + threshold) : 0);
    }
  }
  codes.end();
}

bool in_double(MinmaxFormat format) { return format.bits > 8 && format.bits != 16; }

}  // namespace

void minmax_encode(MinmaxFormat format, const float* source, std::size_t n, std::byte* target,
                   const RandomStream* random) {
  if (in_double(format)) return encode_in_double(format, source, n, target, random);
  QCCL_DISPATCH(minmax_encode)(format, source, n, target, random);
}

void minmax_decode(MinmaxFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  if (in_double(format)) return decode_in_double(format, source, addend, target, n);
  QCCL_DISPATCH(minmax_decode)(format, source, addend, target, n);
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
