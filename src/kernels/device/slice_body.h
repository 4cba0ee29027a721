// Runs jobs (slice_job.h) on groups of lanes: the bodies of the device's kernels, which the host can run as well. Every
// group takes pieces of slices in turn, the pieces of all jobs together, and shares nothing with the others.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/device/block_int_lanes.h"
#include "kernels/device/bucket_encoder.h"
#include "kernels/device/minmax_lanes.h"
#include "kernels/device/sign_lanes.h"
#include "kernels/device/slice_values.h"

namespace qccl::kernels::device {

inline constexpr std::uint32_t kPieceElements = 1024;  // of programs without buckets

constexpr std::uint32_t even_pieces(const SliceJob& job) {
  return static_cast<std::uint32_t>((std::uint64_t{job.count} + kPieceElements - 1) / kPieceElements);
}

// Calls use(run) for each octet of a piece, each in one lane.
template <class Group, class Use>
QCCL_HD void each_octet(Group& group, const SliceJob& job, std::uint32_t piece, Use use) {
  const std::uint32_t begin = piece * kPieceElements;
  const std::uint32_t end = lesser(job.count - begin, kPieceElements) + begin;
  group.each([&](int lane, auto&) {
    for (auto octet = static_cast<std::uint32_t>(lane); octet < octets(end - begin); octet += kGroupLanes) {
      use(octet_of(begin, end, octet));
    }
  });
}

// ---- Programs: pieces() of a job, and run() for one of them.

struct NoMemory {};

// Jobs that compute in their own type, without a codec.
struct OwnTypeProgram {
  using Lane = NoMemory;
  using Memory = NoMemory;

  QCCL_HD static std::uint32_t pieces(const SliceJob& job) { return even_pieces(job); }

  template <class Group>
  QCCL_HD static void run(const SliceJob& job, Memory&, Group& group, std::uint32_t piece) {
    switch (job.type) {
      case DataType::float32: return run_typed<float>(job, group, piece);
      case DataType::float64: return run_typed<double>(job, group, piece);
      case DataType::int8: return run_typed<std::int8_t>(job, group, piece);
      case DataType::uint8: return run_typed<std::uint8_t>(job, group, piece);
      case DataType::int16: return run_typed<std::int16_t>(job, group, piece);
      case DataType::uint16: return run_typed<std::uint16_t>(job, group, piece);
      case DataType::int32: return run_typed<std::int32_t>(job, group, piece);
      case DataType::uint32: return run_typed<std::uint32_t>(job, group, piece);
      case DataType::int64: return run_typed<std::int64_t>(job, group, piece);
      case DataType::uint64: return run_typed<std::uint64_t>(job, group, piece);
      case DataType::boolean: return run_typed<bool>(job, group, piece);
      case DataType::float16:
      case DataType::bfloat16: return run_typed<std::uint16_t>(job, group, piece);  // only moved
    }
  }

 private:
  // T bool: bytes that are 0 or not.
  template <class T, class Group>
  QCCL_HD static void run_typed(const SliceJob& job, Group& group, std::uint32_t piece) {
    using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
    each_octet(group, job, piece, [&](Run run) {
      Octet<Stored> sum{};
      for (int i = 0; i < job.source_count; ++i) {
        const auto part = load_own<T, Stored>(job, job.sources[i], run);
        if (i == 0) {
          sum = part;
        } else if constexpr (std::is_same_v<T, bool>) {
          sum = truths(sum);
          combine_octets(reference::logical(job.op), sum, truths(part));
        } else {
          combine_octets(job.op, sum, part);
        }
      }
      if constexpr (std::is_floating_point_v<T>) finish_floats(job, sum);
      if (std::is_same_v<T, bool> && job.finishes) sum = truths(sum);
      if (job.output != nullptr) store_octet(job.output, run, sum);
      for (int i = 0; i < job.payload_count; ++i) store_octet(job.payloads[i], run, sum);
    });
  }

  template <class T, class Stored>
  QCCL_HD static Octet<Stored> load_own(const SliceJob& job, const Source& source, Run run) {
    auto part = load_octet<Stored>(source.data, run);
    if constexpr (std::is_floating_point_v<T>) {
      if (!source.is_scaled) return part;
      const auto factor = static_cast<T>(job.factor);
      QCCL_UNROLL
      for (int i = 0; i < kOctet; ++i) part.of[i] = reference::canonical(part.of[i] * factor);
    }
    return part;
  }

  template <class Stored>
  QCCL_HD static Octet<Stored> truths(const Octet<Stored>& values) {
    Octet<Stored> result{};
    QCCL_UNROLL
    for (int i = 0; i < kOctet; ++i) result.of[i] = values.of[i] != 0 ? 1 : 0;
    return result;
  }
};

// Jobs that compute in float32, whose payload follows element by element.
template <class Codec>
struct ValueProgram {
  using Lane = NoMemory;
  using Memory = NoMemory;

  QCCL_HD static std::uint32_t pieces(const SliceJob& job) { return even_pieces(job); }

  template <class Group>
  QCCL_HD static void run(const SliceJob& job, Memory&, Group& group, std::uint32_t piece) {
    const Codec codec(job);
    each_octet(group, job, piece, [&](Run run) {
      const Octet<float> values = sum_of_parts(codec, job, run);
      for (int i = 0; i < job.payload_count; ++i) codec.encode(job.payloads[i], run, values);
      write_targets(job, run, values, codec.sent(values));
    });
  }
};

// Jobs with a codec whose elements share scales. Without a payload, and where none is needed, nothing is encoded.
template <class Codec>
struct BucketProgram {
  using Lane = typename Codec::Measure;
  using Memory = BucketMemory<Codec>;

  QCCL_HD static bool encodes(const SliceJob& job) {
    return job.payload_count > 0 || job.outputs_sent || job.keeps_residual;
  }
  QCCL_HD static std::uint32_t pieces(const SliceJob& job) {
    return encodes(job) ? piece_count(job) : even_pieces(job);
  }

  template <class Group>
  QCCL_HD static void run(const SliceJob& job, Memory& memory, Group& group, std::uint32_t piece) {
    if (encodes(job)) {
      BucketEncoder<Codec, Group>(job, memory, group).encode(piece);
    } else {
      const Codec codec(job);
      each_octet(group, job, piece, [&](Run run) {
        const Octet<float> values = sum_of_parts(codec, job, run);
        write_targets(job, run, values, values);
      });
    }
  }
};

template <Entry kEntry>
struct ProgramOf;
template <>
struct ProgramOf<Entry::own_type> : OwnTypeProgram {};
template <>
struct ProgramOf<Entry::raw> : ValueProgram<RawCodec> {};
template <>
struct ProgramOf<Entry::cast> : ValueProgram<CastCodec> {};
template <>
struct ProgramOf<Entry::minmax> : BucketProgram<MinmaxCodec> {};
template <>
struct ProgramOf<Entry::block_int> : BucketProgram<BlockIntCodec> {};
template <>
struct ProgramOf<Entry::sign> : BucketProgram<SignCodec> {};

// ----

// What the lanes of a group share.
template <class Program>
struct GroupMemory {
  SliceJob job;
  typename Program::Memory own;
};

struct GroupIndex {
  std::uint32_t index = 0;
  std::uint32_t count = 1;
};

// Runs the group's part of jobs that all have the program.
template <class Program, class Group>
QCCL_HD void run_jobs(const SliceJob* jobs, std::uint32_t count, GroupIndex self, GroupMemory<Program>& memory,
                      Group& group) {
  static_assert(std::is_trivially_copyable_v<SliceJob> && sizeof(SliceJob) % 4 == 0);
  std::uint32_t next = self.index;  // the group's next piece, counted from the job's first
  for (const SliceJob* job = jobs; job != jobs + count; ++job) {
    const std::uint32_t pieces = Program::pieces(*job);
    if (next < pieces) {
      group.each([&](int lane, auto&) {  // to where reading it takes no trip to the host's memory
        auto* const to = reinterpret_cast<char*>(&memory.job);
        const auto* const from = reinterpret_cast<const char*>(job);
        for (auto at = static_cast<std::size_t>(lane) * 4; at < sizeof(SliceJob); at += 4 * kGroupLanes) {
          store_aligned(to + at, load_aligned<std::uint32_t>(from + at));
        }
      });
    }
    for (; next < pieces; next += self.count) Program::run(memory.job, memory.own, group, next);
    next -= pieces;
  }
}

}  // namespace qccl::kernels::device
