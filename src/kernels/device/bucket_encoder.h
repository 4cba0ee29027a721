// Encodes a slice in buckets, a piece at a time: some whole buckets whose codes fill whole bytes, so that no two groups
// write one byte. First the lanes measure the buckets, a team of lanes each, and write their headers; then each lane
// quantizes octets of the piece and writes whatever the job wants of them. Values stay in the group's memory in
// between, or are computed again where the piece is too long for it.
#pragma once

#include "kernels/device/codecs.h"
#include "kernels/device/group.h"
#include "kernels/device/slice_values.h"

namespace qccl::kernels::device {

inline constexpr std::uint32_t kKept = 1024;        // values that a group keeps
inline constexpr std::uint32_t kMostBuckets = 32;   // of a piece
inline constexpr std::uint32_t kBlockOctets = 512;  // sign's sums are joined after as many

template <class Codec>
struct BucketMemory {
  float kept[kKept];
  typename Codec::Quantizer quantizers[kMostBuckets];
};

// Buckets of a piece: as many as fit, in whole bytes.
constexpr std::uint32_t piece_buckets(std::uint32_t bucket) {
  const std::uint32_t power_of_two = bucket & (0u - bucket);  // the largest that divides the bucket
  const std::uint32_t step = kOctet / lesser<std::uint32_t>(power_of_two, kOctet);
  const std::uint32_t fit = lesser(kMostBuckets, kKept / bucket);
  return greater(fit / step * step, step);
}

constexpr std::uint32_t piece_count(const SliceJob& job) {
  const std::uint64_t elements = std::uint64_t{piece_buckets(job.format.bucket)} * job.format.bucket;
  return static_cast<std::uint32_t>((job.count + elements - 1) / elements);
}

// Lanes that measure a bucket together: no more than have an octet of it.
constexpr int team_lanes(std::uint32_t bucket, int most) {
  int lanes = most;
  while (lanes > 1 && static_cast<std::uint32_t>(lanes / 2) * kOctet >= bucket) lanes /= 2;
  return lanes;
}

template <class Codec, class Group>
class BucketEncoder {
 public:
  QCCL_HD BucketEncoder(const SliceJob& job, BucketMemory<Codec>& memory, Group& group)
      : job_(job), codec_(job), memory_(memory), group_(group), buckets_(piece_buckets(job.format.bucket)) {}

  QCCL_HD void encode(std::uint32_t piece) {
    const std::uint64_t elements = std::uint64_t{buckets_} * job_.format.bucket;
    begin_ = static_cast<std::uint32_t>(piece * elements);
    end_ = static_cast<std::uint32_t>(lesser<std::uint64_t>(job_.count, begin_ + elements));
    first_bucket_ = piece * buckets_;
    keeps_ = end_ - begin_ <= kKept;
    const int lanes = team_lanes(job_.format.bucket, codec_.team_lanes());
    for (std::uint32_t bucket = 0; bucket < buckets_; bucket += static_cast<std::uint32_t>(kGroupLanes / lanes)) {
      measure(bucket, lanes);
    }
    group_.each([&](int lane, auto&) {
      for (auto octet = static_cast<std::uint32_t>(lane); octet < octets(end_ - begin_); octet += kGroupLanes) {
        quantize(octet_of(begin_, end_, octet));
      }
    });
  }

 private:
  using Measure = typename Codec::Measure;

  // Where bucket `bucket` of the piece, or what there is of it, ends.
  QCCL_HD std::uint32_t bucket_begin(std::uint32_t bucket) const {
    return static_cast<std::uint32_t>(lesser<std::uint64_t>(end_, begin_ + std::uint64_t{bucket} * job_.format.bucket));
  }

  // Measures the buckets from `first` on, one by each team of `lanes`.
  QCCL_HD void measure(std::uint32_t first, int lanes) {
    group_.each([&](int, Measure& own) { codec_.begin(own); });
    add(first, lanes);
    codec_.check(group_, lanes);
    if (group_.any(&Measure::again)) add(first, lanes);
    group_.each([&](int lane, Measure& own) {
      const std::uint32_t bucket = first + static_cast<std::uint32_t>(lane / lanes);
      if (lane % lanes != 0 || bucket >= buckets_ || bucket_begin(bucket) >= end_) return;
      const auto header = codec_.header_of(own, bucket_begin(bucket + 1) - bucket_begin(bucket));
      memory_.quantizers[bucket] = codec_.quantizer_of(header);
      for (int i = 0; i < job_.payload_count; ++i) store_header(job_.payloads[i], first_bucket_ + bucket, header);
    });
  }

  // A repetition is for those that want it.
  QCCL_HD void add(std::uint32_t first, int lanes) {
    const bool repeats = group_.any(&Measure::again);
    for (std::uint32_t block = 0; block < octets(job_.format.bucket); block += kBlockOctets) {
      group_.each([&](int lane, Measure& own) {
        const std::uint32_t bucket = first + static_cast<std::uint32_t>(lane / lanes);
        if (bucket >= buckets_ || own.again != repeats) return;
        const std::uint32_t begin = bucket_begin(bucket), end = bucket_begin(bucket + 1);
        const std::uint32_t last = lesser(octets(end - begin), block + kBlockOctets);
        for (std::uint32_t octet = block + static_cast<std::uint32_t>(lane % lanes); octet < last;
             octet += static_cast<std::uint32_t>(lanes)) {
          const Run run = octet_of(begin, end, octet);
          const Octet<float> values = sum_of_parts(codec_, job_, run);
          if (keeps_) store_octet(memory_.kept, from_here(run), values);
          codec_.take(own, values, run.count);
        }
      });
      codec_.end_block(group_, lanes);
    }
  }

  QCCL_HD Run from_here(Run run) const { return {run.first - begin_, run.count}; }

  QCCL_HD void quantize(Run run) {
    const Octet<float> values =
        keeps_ ? load_octet<float>(memory_.kept, from_here(run)) : sum_of_parts(codec_, job_, run);
    std::uint8_t random[kOctet] = {};
    if (job_.format.stochastic) draw(run, random);
    std::uint32_t bucket = (run.first - begin_) / job_.format.bucket;
    std::uint32_t end = (bucket + 1) * job_.format.bucket - (run.first - begin_);
    std::uint64_t codes = 0;
    Octet<float> sent{};
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      if (i >= run.count) break;
      if (static_cast<std::uint32_t>(i) == end) {
        ++bucket;
        end += job_.format.bucket;
      }
      const auto quantizer = memory_.quantizers[bucket];
      const std::uint32_t code = job_.format.stochastic ? codec_.code(quantizer, values.of[i], random[i])
                                                        : codec_.code(quantizer, values.of[i]);
      codes |= std::uint64_t{code} << (i * codec_.bits());
      sent.of[i] = codec_.value(quantizer, code);
    }
    for (int i = 0; i < job_.payload_count; ++i) {
      store_codes(job_.payloads[i] + codec_.header_bytes(job_.count), codec_.bits(), run, codes);
    }
    write_targets(job_, run, values, sent);
  }

  // The random bytes of a run: four elements share a word.
  QCCL_HD void draw(Run run, std::uint8_t (&random)[kOctet]) const {
    const RandomStream& stream = job_.random;
    const std::uint8_t offset = reference::stratum_offset(stream.rank, stream.world);
    std::uint64_t counter = (stream.first_element + run.first) / 4;
    reference::RandomKeys keys = reference::random_keys(stream.key, static_cast<std::uint32_t>(counter >> 32));
    std::uint32_t word = reference::random_word(keys, static_cast<std::uint32_t>(counter));
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      const std::uint64_t element = stream.first_element + run.first + static_cast<std::uint32_t>(i);
      if (element / 4 != counter) {
        counter = element / 4;
        keys = reference::random_keys(stream.key, static_cast<std::uint32_t>(counter >> 32));
        word = reference::random_word(keys, static_cast<std::uint32_t>(counter));
      }
      random[i] = static_cast<std::uint8_t>((word >> (element % 4 * 8)) + offset);
    }
  }

  const SliceJob& job_;
  const Codec codec_;
  BucketMemory<Codec>& memory_;
  Group& group_;
  const std::uint32_t buckets_;
  // These are the piece's.
  std::uint32_t begin_ = 0, end_ = 0;  // elements
  std::uint32_t first_bucket_ = 0;
  bool keeps_ = false;
};

}  // namespace qccl::kernels::device
