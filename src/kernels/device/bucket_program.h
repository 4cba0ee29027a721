// Jobs whose payload has buckets, a piece at a time (job_list.h). The lanes of a team add up the parts of their bucket
// and keep the sums in registers; they measure the bucket, write its header, and quantize what they have. Codes meet in
// the group's memory and leave from there, up to 16 bytes a lane, whatever their width. Loose buckets are in
// loose_buckets.h.
#pragma once

#include "kernels/device/job_list.h"
#include "kernels/device/loose_buckets.h"
#include "kernels/device/random_bytes.h"
#include "kernels/device/slice_values.h"

namespace qccl::kernels::device {

template <class Codec>
struct BucketLane : Codec::Measure {
  Octets<float> held;
};

// Held buckets leave the room of loose ones to their codes.
template <class Codec>
struct BucketMemory {
  LooseMemory<Codec> loose;

  QCCL_HD std::byte* codes() { return reinterpret_cast<std::byte*>(loose.kept); }
};

// Copies from memory that is aligned to 16 bytes; `lane` is one of the group's.
template <std::size_t kBytes>
QCCL_HD std::uint32_t copy_words(std::byte* to, const std::byte* from, std::uint32_t bytes, std::uint32_t lane) {
  struct alignas(kBytes) Word {
    std::byte of[kBytes];
  };
  const std::uint32_t whole = bytes / kBytes * kBytes;
  QCCL_ROLL
  for (std::uint32_t at = lane * kBytes; at < whole; at += kGroupLanes * kBytes) {
    store_aligned(to + at, load_aligned<Word>(from + at));
  }
  return whole;
}
QCCL_HD inline void copy_codes(std::byte* to, const std::byte* from, std::uint32_t bytes, std::uint32_t lane) {
  const std::uint32_t whole = is_aligned<16>(to)  ? copy_words<16>(to, from, bytes, lane)
                              : is_aligned<4>(to) ? copy_words<4>(to, from, bytes, lane)
                                                  : 0;
  QCCL_ROLL
  for (std::uint32_t at = whole + lane; at < bytes; at += kGroupLanes) to[at] = from[at];
}
// From memory of any alignment; fastest where both are off alignment alike.
QCCL_HD inline void copy_bytes(std::byte* to, const std::byte* from, std::uint32_t bytes, std::uint32_t lane) {
  const auto ahead = static_cast<std::uint32_t>(0u - reinterpret_cast<std::uintptr_t>(from)) % 16;
  const std::uint32_t head = lesser(ahead, bytes);
  if (lane < head) to[lane] = from[lane];
  copy_codes(to + head, from + head, bytes - head, lane);
}

// Stores the codes of a lane's octets in memory that is aligned to eight of them.
QCCL_HD inline void store_words(std::byte* to, int bits, const Runs& runs, const std::uint64_t (&words)[kHeld]) {
  const std::size_t step = code_offset(runs.step, bits);
  const bool are_whole = runs.are_whole(kHeld);
  QCCL_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    std::byte* const at = to + step * static_cast<std::size_t>(k);
    if (are_whole && bits == 4) {
      store_aligned(at, static_cast<std::uint32_t>(words[k]));
    } else if (are_whole && bits == 8) {
      store_aligned(at, words[k]);
    } else {
      const int count = are_whole ? kOctet : runs.run(k).count;
      store_code_bytes(at, code_bytes(bits, count), first_codes(words[k], bits, count));
    }
  }
}

template <class Codec>
class BucketProgram {
 public:
  using Lane = BucketLane<Codec>;
  using Memory = BucketMemory<Codec>;

  QCCL_HD explicit BucketProgram(const SliceJob& job)
      : job_(job),
        codec_(job),
        layout_(layout_of(job)),
        is_quantized_(device::is_quantized(job)),
        needs_sent_(job.outputs_sent || job.keeps_residual),
        is_stochastic_(job.format.stochastic) {}

  template <class Group>
  QCCL_HD void run(Memory& memory, Group& group, std::uint32_t piece) const {
    if (is_quantized_ && !layout_.is_held) {
      encode_loose<Codec>(job_, memory.loose, group.template with<typename Codec::Measure>(), piece);
      return;
    }
    group.each([&](int lane, Lane& own) { own.held = sum_of_parts<kHeld>(codec_, job_, place_of(piece, lane)); });
    if (is_quantized_) {
      measure_lanes<Codec, Lane>(codec_, group, [&](auto sums, auto take) { take_held(group, piece, sums, take); });
    }
    group.each([&](int lane, Lane& own) {
      const Place place = place_of(piece, lane);
      if (place.runs.first == place.runs.end) return;
      if (is_quantized_) quantize(own, place, memory, piece);
      if (!job_.outputs_sent) canonize(job_, own.held);
      write_values(job_, place.runs, own.held);
    });
    if (is_quantized_) write_codes(memory, group, piece);
  }

 private:
  // In the slice.
  QCCL_HD std::uint32_t begin_of(std::uint64_t piece) const {
    return static_cast<std::uint32_t>(lesser<std::uint64_t>(job_.count, piece * layout_.piece_elements));
  }

  QCCL_HD Place place_of(std::uint32_t piece, int lane) const {
    const auto member = static_cast<std::uint32_t>(lane);
    const std::uint32_t begin = begin_of(piece), end = begin_of(std::uint64_t{piece} + 1);
    if (!layout_.is_held) return {{lesser(begin + member * kOctet, end), kGroupLanes * kOctet, end}};
    const std::uint32_t team = member >> layout_.team_log2, lanes = 1u << layout_.columns_log2;
    const std::uint32_t bucket_begin = lesser(begin + team * codec_.bucket(), end);
    const std::uint32_t bucket_end = lesser(bucket_begin + codec_.bucket(), end);
    const std::uint32_t octet = turn_of(lane) * lanes * kHeld + (member & (lanes - 1));
    const std::uint32_t first = lesser(bucket_begin + octet * kOctet, bucket_end);
    return {{first, lanes * kOctet, bucket_end}, (piece << (5 - layout_.team_log2)) + team, true};
  }

  // The lanes of a team that have its first rows have the first turn.
  QCCL_HD std::uint32_t turns() const { return 1u << (layout_.team_log2 - layout_.columns_log2); }
  QCCL_HD std::uint32_t turn_of(int lane) const {
    return (static_cast<std::uint32_t>(lane) >> layout_.columns_log2) & (turns() - 1);
  }

  // Calls use(octet, count) for what there is of a lane's octets.
  template <class Use>
  QCCL_HD static void each_held(const Octets<float>& held, const Runs& runs, Use use) {
    if (runs.are_whole(kHeld)) {
      QCCL_UNROLL
      for (int k = 0; k < kHeld; ++k) use(held.of[k], kOctet);
    } else {
      QCCL_UNROLL
      for (int k = 0; k < kHeld; ++k) use(held.of[k], runs.run(k).count);
    }
  }

  // Calls take(own, values, count) for what every lane holds, turn after turn if the codec has an order.
  template <class Group, class Sums, class Take>
  QCCL_HD void take_held(Group& group, std::uint32_t piece, Sums sums, Take take) const {
    const std::uint32_t turns = Codec::kIsOrdered ? this->turns() : 1;
    QCCL_ROLL
    for (std::uint32_t turn = 0; turn < turns; ++turn) {
      group.each([&](int lane, Lane& own) {
        if (Codec::kIsOrdered && turn_of(lane) != turn) return;
        each_held(own.held, place_of(piece, lane).runs,
                  [&](const Octet<float>& values, int count) { take(own, values, count); });
      });
      if constexpr (Codec::kIsOrdered) {
        const std::uint32_t next = turn + 1;
        if (next < turns) {
          codec_.hand_on(sums, group, static_cast<int>((turn ^ next) << layout_.columns_log2),
                         [&](int lane) { return turn_of(lane) == next; });
        }
      }
    }
    codec_.end_block(sums, group, 1 << layout_.columns_log2);
    if constexpr (Codec::kIsOrdered) codec_.share(group, 1 << layout_.columns_log2, 1 << layout_.team_log2);
  }

  template <class Group>
  QCCL_HD void write_codes(Memory& memory, Group& group, std::uint32_t piece) const {
    const std::uint32_t begin = begin_of(piece), count = begin_of(std::uint64_t{piece} + 1) - begin;
    const std::uint32_t bytes = (count * static_cast<std::uint32_t>(codec_.bits()) + 7) / 8;
    group.each([&](int lane, Lane&) {
      for (int i = 0; i < job_.payload_count; ++i) {
        std::byte* const to = job_.payloads[i] + codec_.codes_offset() + code_offset(begin, codec_.bits());
        copy_codes(to, memory.codes(), bytes, static_cast<std::uint32_t>(lane));
      }
    });
  }

  // Makes of what a lane holds its codes, in memory, and if that is wanted what they decode to.
  QCCL_HD void quantize(Lane& own, const Place& place, Memory& memory, std::uint32_t piece) const {
    const Runs& runs = place.runs;
    const std::uint32_t bucket_begin = place.bucket * codec_.bucket();
    const auto header = codec_.header_of(own, runs.end - bucket_begin);
    const auto quantizer = codec_.quantizer_of(header);
    if (runs.first == bucket_begin) {
      for (int i = 0; i < job_.payload_count; ++i) store_header(job_.payloads[i], place.bucket, header);
    }
    const RandomOctets random(job_, runs);
    Octets<float> sent;
    std::uint64_t words[kHeld];
    QCCL_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const Octet<float>& values = own.held.of[k];
      const Octet<std::uint32_t> codes =
          is_stochastic_ ? codec_.codes(quantizer, values, random.octet(k)) : codec_.codes(quantizer, values);
      if (needs_sent_) sent.of[k] = codec_.values(quantizer, codes);
      words[k] = packed(codes, codec_.bits());
    }
    store_words(memory.codes() + code_offset(runs.first - begin_of(piece), codec_.bits()), codec_.bits(), runs, words);
    if (job_.keeps_residual) write_residual(job_, runs, own.held, sent);
    if (job_.outputs_sent) own.held = sent;
  }

  const SliceJob& job_;
  const Codec codec_;
  const Layout layout_;
  const bool is_quantized_;
  const bool needs_sent_;
  const bool is_stochastic_;
};

}  // namespace qccl::kernels::device
