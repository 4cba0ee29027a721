// Encodes buckets that no team of lanes can hold in registers: long ones, and those that are not whole octets. Their
// sums wait in the group's memory between being measured and being quantized; those of a long piece are computed twice.
// Rare, and therefore a function of its own.
#pragma once

#include "kernels/device/codecs.h"
#include "kernels/device/job_list.h"
#include "kernels/device/random_bytes.h"
#include "kernels/device/slice_values.h"

namespace qccl::kernels::device {

inline constexpr std::uint32_t kBlockOctets = 512;  // sign's sums are joined after as many

template <class Codec>
struct LooseMemory {
  alignas(16) float kept[kPieceElements];  // the sums, unless the piece is longer
  typename Codec::Header headers[kMostBuckets];
  typename Codec::Quantizer quantizers[kMostBuckets];
};

template <class Codec>
QCCL_HD_COLD Octets<float, 1> loose_sum(Codec codec, const SliceJob& job, Run run) {
  return sum_of_parts<1>(codec, job, Place{{run.first, 0, run.first + static_cast<std::uint32_t>(run.count)}});
}

template <class Codec, class Group>
class LooseEncoder {
 public:
  QCCL_HD LooseEncoder(const SliceJob& job, LooseMemory<Codec>& memory, Group& group, std::uint32_t piece)
      : job_(job),
        codec_(job),
        memory_(memory),
        group_(group),
        buckets_(loose_buckets(job.format.bucket)),
        lanes_log2_(layout_of(job).columns_log2),
        first_bucket_(piece * buckets_),
        begin_(begin_of(first_bucket_)),
        end_(begin_of(first_bucket_ + buckets_)) {}

  QCCL_HD void encode() {
    for (std::uint32_t bucket = 0; bucket < buckets_; bucket += std::uint32_t{kGroupLanes} >> lanes_log2_) {
      measure(first_bucket_ + bucket);
    }
    group_.each([&](int lane, Measure&) {
      for (auto octet = static_cast<std::uint32_t>(lane); octet < octets(end_ - begin_); octet += kGroupLanes) {
        quantize(octet_of(begin_, end_, octet));
      }
    });
    write_headers();
  }

 private:
  using Measure = typename Codec::Measure;

  // Where a bucket of the slice, or what there is of it, begins.
  QCCL_HD std::uint32_t begin_of(std::uint32_t bucket) const {
    return static_cast<std::uint32_t>(lesser<std::uint64_t>(job_.count, std::uint64_t{bucket} * job_.format.bucket));
  }
  QCCL_HD std::uint32_t bucket_of(std::uint32_t first, int lane) const {
    return first + (static_cast<std::uint32_t>(lane) >> lanes_log2_);
  }

  QCCL_HD bool keeps() const { return end_ - begin_ <= kPieceElements; }
  QCCL_HD Run in_piece(Run run) const { return {run.first - begin_, run.count}; }
  QCCL_HD Octet<float> sum_of(Run run) const { return loose_sum(codec_, job_, run).of[0]; }

  // Measures the buckets from `first` on, one by each team.
  QCCL_HD void measure(std::uint32_t first) {
    measure_lanes<Codec, Measure>(codec_, group_, [&](auto sums, auto use) { take(first, sums, use); });
    group_.each([&](int lane, Measure& own) {
      const std::uint32_t bucket = bucket_of(first, lane);
      const bool leads = (static_cast<std::uint32_t>(lane) & ((1u << lanes_log2_) - 1)) == 0;
      if (!leads || bucket >= first_bucket_ + buckets_ || begin_of(bucket) >= end_) return;
      const auto header = codec_.header_of(own, begin_of(bucket + 1) - begin_of(bucket));
      memory_.headers[bucket - first_bucket_] = header;
      memory_.quantizers[bucket - first_bucket_] = codec_.quantizer_of(header);
    });
  }

  // Not before the parts were read for the last time: one of them may lie in the same memory.
  QCCL_HD void write_headers() {
    group_.each([&](int lane, Measure&) {
      const std::uint32_t bucket = first_bucket_ + static_cast<std::uint32_t>(lane);
      if (static_cast<std::uint32_t>(lane) >= buckets_ || begin_of(bucket) >= end_) return;
      for (int i = 0; i < job_.payload_count; ++i) store_header(job_.payloads[i], bucket, memory_.headers[lane]);
    });
  }

  template <class Sums, class Take>
  QCCL_HD void take(std::uint32_t first, Sums sums, Take take) {
    const std::uint32_t lanes = 1u << lanes_log2_;
    for (std::uint32_t block = 0; block < octets(job_.format.bucket); block += kBlockOctets) {
      group_.each([&](int lane, Measure& own) {
        const std::uint32_t bucket = bucket_of(first, lane);
        if (bucket >= first_bucket_ + buckets_) return;
        const std::uint32_t begin = begin_of(bucket), end = begin_of(bucket + 1);
        const std::uint32_t last = lesser(octets(end - begin), block + kBlockOctets);
        for (std::uint32_t octet = block + (static_cast<std::uint32_t>(lane) & (lanes - 1)); octet < last;
             octet += lanes) {
          const Run run = octet_of(begin, end, octet);
          const Octet<float> values = sum_of(run);
          if (keeps()) store_octet(memory_.kept, in_piece(run), values);
          take(own, values, run.count);
        }
      });
      codec_.end_block(sums, group_, static_cast<int>(lanes));
    }
  }

  QCCL_HD void quantize(Run run) {
    Octets<float, 1> values{keeps() ? load_octet<float>(memory_.kept, in_piece(run)) : sum_of(run)}, sent{};
    const Runs runs{run.first, 0, run.first + static_cast<std::uint32_t>(run.count)};
    Octet<std::uint32_t> random{}, codes{};
    if (job_.format.stochastic) random = random_octet(job_.random, job_.random.first_element + run.first);
    each_bucket(run, job_.format.bucket, [&](std::uint32_t bucket, int from, int to) {
      const auto& quantizer = memory_.quantizers[bucket - first_bucket_];
      const auto all = job_.format.stochastic ? codec_.codes(quantizer, values.of[0], random)
                                              : codec_.codes(quantizer, values.of[0]);
      replace(codes, all, from, to);
      replace(sent.of[0], codec_.values(quantizer, all), from, to);
    });
    for (int i = 0; i < job_.payload_count; ++i) {
      store_code_bytes(job_.payloads[i] + codec_.codes_offset() + code_offset(run.first, codec_.bits()),
                       code_bytes(codec_.bits(), run.count), packed(codes, codec_.bits()));
    }
    if (job_.keeps_residual) write_residual(job_, runs, values, sent);
    if (job_.outputs_sent) {
      values = sent;
    } else {
      canonize(job_, values);
    }
    write_values(job_, runs, values);
  }

  const SliceJob& job_;
  const Codec codec_;
  LooseMemory<Codec>& memory_;
  Group& group_;
  const std::uint32_t buckets_;
  const int lanes_log2_;
  const std::uint32_t first_bucket_;
  const std::uint32_t begin_, end_;  // elements of the piece
};

template <class Codec, class Group>
QCCL_HD_COLD void encode_loose(const SliceJob& job, LooseMemory<Codec>& memory, Group group, std::uint32_t piece) {
  LooseEncoder<Codec, Group>(job, memory, group, piece).encode();
}

}  // namespace qccl::kernels::device
