// Runs jobs (slice_job.h) on groups of lanes: the bodies of the device's kernels, which the host can run as well. Every
// group takes pieces of slices in turn, the pieces of all jobs together, and shares nothing with the others.
#pragma once

#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "kernels/device/block_int_lanes.h"
#include "kernels/device/bucket_program.h"
#include "kernels/device/grid/grid_program.h"
#include "kernels/device/job_list.h"
#include "kernels/device/minmax_lanes.h"
#include "kernels/device/sign_lanes.h"
#include "kernels/device/slice_values.h"

namespace qccl::kernels::device {

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

// ---- Programs of a job: run() works on one of its pieces.

struct NoMemory {};

// Jobs that compute in their own type, without a codec.
class OwnTypeProgram {
 public:
  using Lane = NoMemory;
  using Memory = NoMemory;

  QCCL_HD explicit OwnTypeProgram(const SliceJob& job) : job_(job) {}

  template <class Group>
  QCCL_HD void run(Memory&, Group& group, std::uint32_t piece) const {
    switch (job_.type) {
      case DataType::float32: return run_typed<float>(job_, group, piece);
      case DataType::float64: return run_typed<double>(job_, group, piece);
      case DataType::int8: return run_typed<std::int8_t>(job_, group, piece);
      case DataType::uint8: return run_typed<std::uint8_t>(job_, group, piece);
      case DataType::int16: return run_typed<std::int16_t>(job_, group, piece);
      case DataType::uint16: return run_typed<std::uint16_t>(job_, group, piece);
      case DataType::int32: return run_typed<std::int32_t>(job_, group, piece);
      case DataType::uint32: return run_typed<std::uint32_t>(job_, group, piece);
      case DataType::int64: return run_typed<std::int64_t>(job_, group, piece);
      case DataType::uint64: return run_typed<std::uint64_t>(job_, group, piece);
      case DataType::boolean: return run_typed<bool>(job_, group, piece);
      case DataType::float16:
      case DataType::bfloat16: return run_typed<std::uint16_t>(job_, group, piece);  // only moved
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

  const SliceJob& job_;
};

// Jobs that compute in float32, whose payload follows element by element.
template <class Codec>
class ValueProgram {
 public:
  using Lane = NoMemory;
  using Memory = NoMemory;

  QCCL_HD explicit ValueProgram(const SliceJob& job) : job_(job), codec_(job) {}

  template <class Group>
  QCCL_HD void run(Memory&, Group& group, std::uint32_t piece) const {
    const std::uint32_t begin = piece * kPieceElements;
    const std::uint32_t end = lesser(job_.count - begin, kPieceElements) + begin;
    group.each([&](int lane, auto&) {
      const Runs runs{lesser(begin + static_cast<std::uint32_t>(lane) * kOctet, end), kGroupLanes * kOctet, end};
      Octets<float> values = sum_of_parts<kHeld>(codec_, job_, Place{runs});
      canonize(job_, values);
      write_payloads(runs, values);
      write_values(job_, runs, values);
    });
  }

 private:
  // Also keeps the residual, and makes of values what the payload does, if that is wanted.
  QCCL_HD void write_payloads(const Runs& runs, Octets<float>& values) const {
    if (codec_.wire() == DataType::float32) {
      for (int i = 0; i < job_.payload_count; ++i) store_octets(job_.payloads[i], runs, values);
      if (job_.keeps_residual) write_residual(job_, runs, values, values);
      return;
    }
    const Octets<std::uint16_t> halves = narrowed(codec_.wire(), values);
    for (int i = 0; i < job_.payload_count; ++i) store_octets(job_.payloads[i], runs, halves);
    if (!job_.keeps_residual && !job_.outputs_sent) return;
    const Octets<float> sent = widened(codec_.wire(), halves);
    if (job_.keeps_residual) write_residual(job_, runs, values, sent);
    if (job_.outputs_sent) values = sent;
  }

  const SliceJob& job_;
  const Codec codec_;
};

// In the order of Entry.
using Programs = std::tuple<OwnTypeProgram, ValueProgram<RawCodec>, ValueProgram<CastCodec>, BucketProgram<MinmaxCodec>,
                            BucketProgram<BlockIntCodec>, BucketProgram<SignCodec>, GridProgram, GridFormsProgram>;
static_assert(std::tuple_size_v<Programs> == kEntries);
template <Entry kEntry>
using ProgramOf = std::tuple_element_t<static_cast<std::size_t>(kEntry), Programs>;

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

// Runs the group's part of jobs that all have the program. Each job is copied to memory that its functions can address.
template <class Program, class Group>
QCCL_HD void run_jobs(const JobList& list, GroupIndex self, GroupMemory<Program>& memory, Group& group) {
  static_assert(std::is_trivially_copyable_v<SliceJob> && sizeof(SliceJob) % 4 == 0);
  std::uint32_t begin = 0;
  std::uint32_t next = self.index;  // the group's next piece, of the pieces of all jobs
  for (std::uint32_t index = 0; index < list.count; ++index) {
    const std::uint32_t end = list.piece_ends[index];
    if (next < end) {
      group.each([&](int lane, auto&) {
        auto* const to = reinterpret_cast<char*>(&memory.job);
        const auto* const from = reinterpret_cast<const char*>(&list.jobs[index]);
        for (auto at = static_cast<std::size_t>(lane) * 4; at < sizeof(SliceJob); at += 4 * kGroupLanes) {
          store_aligned(to + at, load_aligned<std::uint32_t>(from + at));
        }
      });
      const Program program(memory.job);
      for (; next < end; next += self.count) program.run(memory.own, group, next - begin);
    }
    begin = end;
  }
}

}  // namespace qccl::kernels::device
