// Payload formats as a lane sees them: octets of a payload to floats and, of formats without buckets, back. Those with
// buckets (minmax_lanes.h, block_int_lanes.h, sign_lanes.h) say what an octet is in a bucket, and what a bucket's lanes
// measure. Every rule is that of the format's *_reference.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "kernels/device/octet.h"
#include "kernels/device/slice_job.h"
#include "kernels/reduce/reduce_reference.h"

namespace qccl::kernels::device {

// 16-bit values to floats and back, the same bits as half.h: a device has instructions for float16, but for NaNs.

QCCL_HD inline float widened_float16(std::uint16_t half) {
#if defined(__CUDA_ARCH__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return reference::canonical(value);
#else
  return to_float(float16{half});
#endif
}

QCCL_HD inline std::uint16_t narrowed_float16(float value) {
#if defined(__CUDA_ARCH__)
  std::uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return value != value ? std::uint16_t{0x7E00} : half;
#else
  return to_float16(value).bits;
#endif
}

QCCL_HD inline float widened(DataType type, std::uint16_t half) {
  return type == DataType::bfloat16 ? to_float(bfloat16{half}) : widened_float16(half);
}
QCCL_HD inline std::uint16_t narrowed(DataType type, float value) {
  return type == DataType::bfloat16 ? to_bfloat16(value).bits : narrowed_float16(value);
}

// Octets, a type at a time.
template <DataType kType>
QCCL_HD Octet<float> widened_as(const Octet<std::uint16_t>& halves) {
  Octet<float> values;
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) values.of[i] = widened(kType, halves.of[i]);
  return values;
}
template <DataType kType>
QCCL_HD Octet<std::uint16_t> narrowed_as(const Octet<float>& values) {
  Octet<std::uint16_t> halves;
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) halves.of[i] = narrowed(kType, values.of[i]);
  return halves;
}

template <int kCount>
QCCL_HD Octets<float, kCount> widened(DataType type, const Octets<std::uint16_t, kCount>& halves) {
  Octets<float, kCount> values;
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    values.of[k] = type == DataType::bfloat16 ? widened_as<DataType::bfloat16>(halves.of[k])
                                              : widened_as<DataType::float16>(halves.of[k]);
  }
  return values;
}
template <int kCount>
QCCL_HD Octets<std::uint16_t, kCount> narrowed(DataType type, const Octets<float, kCount>& values) {
  Octets<std::uint16_t, kCount> halves;
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    halves.of[k] = type == DataType::bfloat16 ? narrowed_as<DataType::bfloat16>(values.of[k])
                                              : narrowed_as<DataType::float16>(values.of[k]);
  }
  return halves;
}

// Floats of an array of the job's type: one of 16 bits or float32.
template <int kCount>
QCCL_HD Octets<float, kCount> load_floats(DataType type, const void* array, const Runs& runs) {
  return type == DataType::float32 ? load_octets<float, kCount>(array, runs)
                                   : widened(type, load_octets<std::uint16_t, kCount>(array, runs));
}

template <int kCount>
QCCL_HD void store_floats(DataType type, void* array, const Runs& runs, const Octets<float, kCount>& values) {
  if (type == DataType::float32) {
    store_octets(array, runs, values);
  } else {
    store_octets(array, runs, narrowed(type, values));
  }
}

// Where a lane's octets lie: all in this bucket, if the format has any and they are held.
struct Place {
  Runs runs;
  std::uint32_t bucket = 0;
  bool is_held = false;
};

// Values of one type each: those of the job's own, or of a 16-bit type for the wire.
class ValueCodec {
 public:
  QCCL_HD explicit ValueCodec(DataType wire) : wire_(wire) {}

  // The type of a payload's values, float32 or of 16 bits.
  QCCL_HD DataType wire() const { return wire_; }

 private:
  const DataType wire_;
};

struct RawCodec : ValueCodec {
  QCCL_HD explicit RawCodec(const SliceJob& job) : ValueCodec(job.type) {}
};

struct CastCodec : ValueCodec {
  QCCL_HD explicit CastCodec(const SliceJob& job)
      : ValueCodec(job.format.kind == PayloadKind::float16 ? DataType::float16 : DataType::bfloat16) {}
};

// What a codec adds up of a bucket, if it has no choice of that (with_sums()).
struct OneSum {};

// Measures what the lanes of a group have of their buckets. take_all(sums, take) calls take(own, values, count) for the
// octets of each lane.
template <class Codec, class Lane, class Group, class TakeAll>
QCCL_HD void measure_lanes(const Codec& codec, Group& group, TakeAll take_all) {
  group.each([&](int, Lane& own) { codec.begin(own); });
  codec.with_sums([&](auto sums) {
    take_all(sums, [&](Lane& own, const Octet<float>& values, int count) { codec.take(sums, own, values, count); });
    if constexpr (Codec::kIsOrdered) {
      group.each([&](int, Lane& own) { codec.check(own); });
      if (!group.any(&Lane::again)) return;
      take_all(sums, [&](Lane& own, const Octet<float>& values, int count) {
        if (own.again) codec.take_again(own, values, count);
      });
    }
  });
}

// A value of any alignment in a payload's headers.
template <class T>
QCCL_HD T load_header(const std::byte* payload, std::uint32_t index) {
  const std::byte* const from = payload + std::size_t{index} * sizeof(T);
  if (is_aligned<sizeof(T)>(from)) return load_aligned<T>(from);
  T header;
  std::memcpy(&header, from, sizeof(T));
  return header;
}

template <class T>
QCCL_HD void store_header(std::byte* payload, std::uint32_t index, T header) {
  std::byte* const to = payload + std::size_t{index} * sizeof(T);
  if (is_aligned<sizeof(T)>(to)) return store_aligned(to, header);
  std::memcpy(to, &header, sizeof(T));
}

// Calls use(bucket, from, to) for the elements [from, to) of each bucket of a run.
template <class Use>
QCCL_HD void each_bucket(Run run, std::uint32_t bucket_size, Use use) {
  std::uint32_t bucket = run.first / bucket_size;
  std::uint32_t end = bucket_size - run.first % bucket_size;
  const auto count = static_cast<std::uint32_t>(run.count);
  for (std::uint32_t from = 0; from < count; ++bucket) {
    const std::uint32_t to = lesser(end, count);
    use(bucket, static_cast<int>(from), static_cast<int>(to));
    from = to;
    end += bucket_size;
  }
}

// Replaces elements [from, to).
template <class T>
QCCL_HD void replace(Octet<T>& values, const Octet<T>& by, int from, int to) {
  QCCL_UNROLL
  for (int i = 0; i < kOctet; ++i) {
    if (i >= from && i < to) values.of[i] = by.of[i];
  }
}

// An octet that may lie in several buckets.
template <class Codec>
QCCL_HD_COLD Octet<float> decode_loose(Codec codec, const std::byte* payload, Run run) {
  const Octet<std::uint32_t> codes =
      unpacked(load_codes(payload + codec.codes_offset(), codec.bits(), run), codec.bits());
  Octet<float> values{};
  each_bucket(run, codec.bucket(), [&](std::uint32_t bucket, int from, int to) {
    replace(values, codec.values(codec.read(payload, bucket), codes), from, to);
  });
  return values;
}

template <int kCount, class Codec>
QCCL_HD Octets<float, kCount> decode_buckets(const Codec& codec, const std::byte* payload, const Place& place) {
  const Runs& runs = place.runs;
  Octets<float, kCount> values{};
  if (runs.first == runs.end) return values;
  if (!place.is_held) {
    QCCL_UNROLL
    for (int k = 0; k < kCount; ++k) values.of[k] = decode_loose(codec, payload, runs.run(k));
    return values;
  }
  const auto quantizer = codec.read(payload, place.bucket);
  const std::byte* const codes = payload + codec.codes_offset() + code_offset(runs.first, codec.bits());
  const bool are_whole = runs.are_whole(kCount);
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    const int bytes = are_whole ? codec.bits() : code_bytes(codec.bits(), runs.run(k).count);
    const std::byte* const from = codes + code_offset(runs.step, codec.bits()) * static_cast<std::size_t>(k);
    values.of[k] = codec.values(quantizer, unpacked(load_code_bytes(from, bytes), codec.bits()));
  }
  return values;
}

}  // namespace qccl::kernels::device
