#include "ptx/kernel_costs.h"

#include "kernels/device/job_case.h"

namespace qccl::kernels::device {
namespace {

constexpr std::uint32_t kElements = 65'536;

JobCase job_of(const CostCase& what) {
  JobCase made{.wants_output = what.work != Work::encode};
  made.job.count = kElements;
  made.job.format = what.format;
  made.job.source_count = what.work == Work::reduce ? 2 : 1;
  made.job.payload_count = what.work == Work::encode || what.work == Work::reduce ? 1 : 0;
  if (what.work == Work::reduce) {
    made.job.sources[1].kind = SourceKind::payload;
    made.job.outputs_sent = true;
  }
  if (what.work == Work::decode) made.job.sources[0].kind = SourceKind::payload;
  made.job.moves = what.work == Work::copy;
  return made;
}

}  // namespace

std::vector<CostCase> cost_cases() {
  const struct {
    const char* name;
    PayloadFormat format;
  } kFormats[] = {{"bfloat16", {.kind = PayloadKind::bfloat16}},
                  {"minmax4", {PayloadKind::minmax, 4, false, false, 1024}},
                  {"minmax8", {PayloadKind::minmax, 8, false, false, 1024}},
                  {"minmax4 stochastic", {PayloadKind::minmax, 4, true, false, 1024}},
                  {"int4", {PayloadKind::block_int, 4, false, false, 32}},
                  {"int8", {PayloadKind::block_int, 8, false, false, 32}},
                  {"sign", {PayloadKind::sign, 1, false, false, 1024}},
                  {"grid", {.kind = PayloadKind::grid, .step = 0.25f}},
                  {"grid relative", {.kind = PayloadKind::grid, .bucket = 4096, .step = 0.5f}}};
  std::vector<CostCase> cases = {{"copy", Work::copy, {}}};
  for (const auto& [name, format] : kFormats) {
    cases.push_back({std::string(name) + " encode", Work::encode, format});
    cases.push_back({std::string(name) + " reduce", Work::reduce, format});
    cases.push_back({std::string(name) + " decode", Work::decode, format});
  }
  return cases;
}

Cost cost_of(const CostCase& what) {
  const JobCase made = job_of(what);
  const JobMemory memory(made);
  const ptx::Counts counts = launch_compiled(entry(memory.job()), &memory.job(), 1, {.blocks = 1, .threads = kThreads});
  const auto each = [](std::uint64_t count) { return static_cast<double>(count) / kElements; };
  return {.instructions = each(counts.instructions),
          .issued = each(counts.warp_instructions * kGroupLanes),
          .accesses = each(counts.accesses),
          .shared_accesses = each(counts.shared_accesses),
          .wide_share = static_cast<double>(counts.wide_accesses) / static_cast<double>(counts.accesses)};
}

}  // namespace qccl::kernels::device
