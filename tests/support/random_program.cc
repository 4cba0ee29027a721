#include "support/random_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "choice/resolve.h"
#include "plan/plan.h"
#include "support/reference.h"
#include "support/sim_collective.h"

namespace qccl::testing {
namespace {

constexpr int kOwnTags = 1000;       // tags from here on belong to one message
constexpr std::size_t kPeriod = 29;  // of the elements' values; prime, so that shifts by a few elements are detected

std::vector<int> draw_ranks(Random& random, int world) {
  std::vector<int> ranks(static_cast<std::size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (std::size_t i = ranks.size() - 1; i > 0; --i) std::swap(ranks[i], ranks[random.below(i + 1)]);
  if (random.below(2) == 0) ranks.resize(1 + random.below(ranks.size()));
  return ranks;
}

std::size_t draw_count(Random& random) {
  const std::uint64_t kind = random.below(10);
  return random.below(kind < 6 ? 200 : kind < 9 ? 5000 : 60'000);
}

// Counts that total about as much as a step with one count, shared unevenly; some are zero.
std::vector<std::size_t> draw_counts(Random& random, std::size_t pieces) {
  std::vector<std::size_t> counts(pieces);
  for (std::size_t& count : counts) {
    if (random.below(3) > 0) count = draw_count(random) / pieces;
  }
  return counts;
}

void draw_extent(Random& random, std::size_t size, ProgramStep& step) {
  if (step.kind == StepKind::collective && step.collective == Collective::barrier) return;
  const bool ragged = step.kind == StepKind::collective && has_pieces(step.collective) && random.below(2) == 0;
  if (ragged) {
    step.counts = draw_counts(random, step.collective == Collective::all_to_all ? size * size : size);
  } else {
    step.count = draw_count(random);
  }
}

// Draws an operation that the type supports, an algorithm that the collective has, and sometimes a codec.
void draw_options(Random& random, ProgramStep& step) {
  const bool reduces = is_reduction(step.collective);
  while (reduces) {
    step.options.op = kOps[random.below(kOps.size())];
    if (supports(step.type, step.options.op)) break;
  }
  const auto algorithms = plan::algorithms_of(step.collective);
  if (random.below(3) > 0) step.options.algorithm = algorithms[random.below(algorithms.size())];
  const auto codec = random.pick(
      std::vector<Compression>{minmax({.bits = 8}), minmax({.bits = 4, .bucket_size = 64}), cast(DataType::bfloat16)});
  const bool wants = random.below(3) == 0;
  const CallOptions compressed{.op = step.options.op, .compression = codec};
  const bool can = resolve_call(step.collective, 1, step.type, 2, compressed).ok();
  if (wants && can) step.options.compression = codec;
}

ProgramStep draw_step(Random& random, int id, const std::vector<ProgramGroup>& groups) {
  ProgramStep step;
  step.id = id;
  step.group = static_cast<int>(random.below(groups.size()));
  const std::size_t size = groups[static_cast<std::size_t>(step.group)].ranks.size();
  const std::uint64_t kind = random.below(12);  // nine collectives
  if (kind >= 9) step.kind = static_cast<StepKind>(kind - 8);
  step.collective = kind < 9 ? static_cast<Collective>(kind) : Collective::all_reduce;
  step.type = kTypes[random.below(kTypes.size())];
  draw_extent(random, size, step);
  step.to = static_cast<int>(random.below(size));
  step.tag = static_cast<int>(random.below(3));
  step.any_source = step.kind == StepKind::message && random.below(3) == 0;
  if (step.any_source) step.tag = kOwnTags + id;
  if (is_rooted(step.collective) || step.kind == StepKind::message) {
    step.options.root = static_cast<int>(random.below(size));
  }
  if (step.kind == StepKind::collective) draw_options(random, step);
  return step;
}

// A member's factor of a premul_sum, by which all products are exact.
double factor_of(int member) {
  constexpr double kFactors[] = {2, -1, 0.5, 1, 3};
  return kFactors[member % 5];
}

// The `place`-th value of a step. Products, and sums of halves, need smaller values to be exact in 16 bits.
long double value(const ProgramStep& step, std::size_t place) {
  if (step.type == DataType::boolean) return static_cast<long double>(place % 3);
  if (step.options.op == ReduceOp::prod) return static_cast<long double>(1 + place % 3);
  if (step.options.op == ReduceOp::premul_sum) return static_cast<long double>(place % 8);
  return static_cast<long double>(place);
}

// A member's elements, times `factor`.
ByteVector elements_of(const ProgramStep& step, int member, std::size_t count, double factor = 1) {
  const std::size_t bytes = element_bytes(step.type);
  ByteVector period(kPeriod * bytes);
  for (std::size_t i = 0; i < kPeriod; ++i) set_element(step.type, period.data(), i, value(step, i) * factor);
  const std::size_t offset = static_cast<std::size_t>(member) * 5 + static_cast<std::size_t>(step.id) * 3;
  ByteVector data(count * bytes);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(data.data() + i * bytes, period.data() + (i * 9 + offset) % kPeriod * bytes, bytes);
  }
  return data;
}

// The counts that one member of an exchange with counts sends to each member, and gets from each.
std::vector<std::size_t> sends_of(const ProgramStep& step, int member, int size) {
  const auto first = step.counts.begin() + member * size;
  return {first, first + size};
}

std::vector<std::size_t> receives_of(const ProgramStep& step, int member, int size) {
  std::vector<std::size_t> counts;
  for (int source = 0; source < size; ++source) {
    counts.push_back(step.counts[static_cast<std::size_t>(source * size + member)]);
  }
  return counts;
}

engine::ResolvedCall call_of(const ProgramStep& step, int member, int size) {
  if (step.counts.empty()) return make_call(step.collective, step.count, step.type, size, step.options);
  std::vector<std::size_t> counts = step.counts;
  if (step.collective == Collective::all_to_all) {
    counts = sends_of(step, member, size);
    const auto receives = receives_of(step, member, size);
    counts.insert(counts.end(), receives.begin(), receives.end());
  }
  return resolve_call(step.collective, std::vector<std::uint64_t>(counts.begin(), counts.end()), step.type, size,
                      step.options)
      .take_or_throw();
}

// use(the step's call, whose counts live as long)
template <class Use>
auto with_call(const Communicator& group, const ProgramStep& step, StepBuffers& buffers, const Use& use) {
  CollectiveCall call{step.collective, buffers.input(), buffers.output(), step.count, step.type, step.options};
  call.options.premul_factor = factor_of(group.rank());
  if (step.counts.empty()) return use(call);
  if (step.collective != Collective::all_to_all) {
    call.counts = step.counts;
    return use(call);
  }
  const auto sends = sends_of(step, group.rank(), group.size());
  const auto receives = receives_of(step, group.rank(), group.size());
  call.counts = sends;
  call.receives = receives;
  return use(call);
}

}  // namespace

Program draw_program(std::uint64_t seed, int world) {
  Random random(seed);
  Program program;
  program.seed = seed;
  program.lanes = static_cast<int>(1 + random.below(3));
  const std::uint64_t groups = static_cast<std::uint64_t>(program.lanes) + random.below(4);
  std::vector<int> groups_of_lane(static_cast<std::size_t>(program.lanes));
  for (std::uint64_t i = 0; i < groups; ++i) {
    const auto lane = static_cast<std::size_t>(i) % groups_of_lane.size();
    program.groups.push_back({draw_ranks(random, world), static_cast<int>(lane)});
    ++groups_of_lane[lane];
  }
  for (const int count : groups_of_lane) program.blocking.push_back(count == 1 && random.below(2) == 0);
  const int steps = static_cast<int>(1 + random.below(20));
  for (int id = 0; id < steps; ++id) program.steps.push_back(draw_step(random, id, program.groups));
  return program;
}

StepBuffers::StepBuffers(const ProgramStep& step, int member, int size) {
  const engine::ResolvedCall call = call_of(step, member, size);
  input_ = elements_of(step, member, engine::input_elements(call, size, member));
  output_.assign(engine::output_elements(call, size, member) * element_bytes(step.type), std::byte{0xEE});
  // A broadcast works in place.
  if (step.kind == StepKind::collective && step.collective == Collective::broadcast) output_ = input_;
}

Work post_collective(Communicator& group, const ProgramStep& step, StepBuffers& buffers) {
  return with_call(group, step, buffers, [&](const CollectiveCall& call) { return group.post(call); });
}

void call_collective(Communicator& group, const ProgramStep& step, StepBuffers& buffers) {
  with_call(group, step, buffers, [&](const CollectiveCall& call) { group.run(call); });
}

std::string check_received(const ProgramStep& step, int member, int size, const ByteVector& output) {
  if (step.kind == StepKind::message && member != step.to) return {};
  const int source = step.kind == StepKind::shift ? (member + size - 1) % size : step.options.root;
  const std::string wrong = difference(step.type, {output}, {elements_of(step, source, step.count)});
  return wrong.empty() ? "" : fmt::format("step {}, member {} of {}: {}", step.id, member, size, wrong);
}

std::string check_results(const ProgramStep& step, const std::vector<ByteVector>& outputs) {
  const int size = static_cast<int>(outputs.size());
  std::vector<engine::ResolvedCall> calls;
  std::vector<ByteVector> inputs;
  for (int member = 0; member < size; ++member) {
    engine::ResolvedCall call = call_of(step, member, size);
    const bool multiplied = call.op == ReduceOp::premul_sum;
    inputs.push_back(
        elements_of(step, member, engine::input_elements(call, size, member), multiplied ? factor_of(member) : 1));
    if (multiplied) call.op = ReduceOp::sum;
    calls.push_back(std::move(call));
  }
  const bool rounds = !calls[0].compression.is_none() && is_reduction(step.collective);
  std::string wrong;
  if (!rounds) {
    wrong = difference(step.type, outputs, expected_decoded(calls, inputs));
  } else if (step.collective == Collective::all_reduce) {
    wrong = difference(step.type, outputs, std::vector<ByteVector>(outputs.size(), outputs[0]));
  }
  if (rounds && wrong.empty()) wrong = check_bound(calls[0], inputs, outputs);
  return wrong.empty() ? "" : fmt::format("step {}, {}: {}", step.id, calls[0].describe(), wrong);
}

}  // namespace qccl::testing
