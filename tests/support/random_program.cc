#include "support/random_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace qccl::testing {
namespace {

constexpr int kOwnTags = 1000;  // tags from here on belong to one message

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

ProgramStep draw_step(Random& random, int id, const std::vector<ProgramGroup>& groups) {
  ProgramStep step;
  step.id = id;
  step.group = static_cast<int>(random.below(groups.size()));
  const std::uint64_t size = groups[static_cast<std::size_t>(step.group)].ranks.size();
  step.kind = static_cast<StepKind>(random.below(8));
  step.type = random.pick(std::vector<DataType>{DataType::float32, DataType::int32, DataType::int64, DataType::uint8});
  step.count = step.kind == StepKind::barrier ? 0 : draw_count(random);
  step.to = static_cast<int>(random.below(size));
  step.tag = static_cast<int>(random.below(3));
  step.any_source = step.kind == StepKind::message && random.below(3) == 0;
  if (step.any_source) step.tag = kOwnTags + id;
  const bool has_root = step.kind == StepKind::broadcast || step.kind == StepKind::message;
  if (has_root) step.options.root = static_cast<int>(random.below(size));
  if (step.kind != StepKind::all_reduce && step.kind != StepKind::reduce_scatter) return step;
  step.options.op = random.pick(std::vector<ReduceOp>{ReduceOp::sum, ReduceOp::min, ReduceOp::max});
  if (step.kind == StepKind::all_reduce) {
    step.options.algorithm =
        random.pick(std::vector<Algorithm>{Algorithm::automatic, Algorithm::one_shot, Algorithm::sra});
  }
  const bool compressible = step.type == DataType::float32 && step.options.op == ReduceOp::sum;
  if (compressible && random.below(3) == 0) step.options.compression = minmax({.bits = 8});
  return step;
}

// What element `i` of member `rank` is; sums over nine ranks fit every type.
int value(const ProgramStep& step, int rank, std::size_t i) {
  return static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 5 + static_cast<std::size_t>(step.id) * 3) % 28);
}

template <class T>
void write(std::byte* target, std::size_t i, int number) {
  const T element = static_cast<T>(number);
  std::memcpy(target + i * sizeof(T), &element, sizeof(T));
}

void write(DataType type, std::byte* target, std::size_t i, int number) {
  switch (type) {
    case DataType::float32: return write<float>(target, i, number);
    case DataType::int32: return write<std::int32_t>(target, i, number);
    case DataType::int64: return write<std::int64_t>(target, i, number);
    default: return write<std::uint8_t>(target, i, number);
  }
}

int reduced(const ProgramStep& step, int size, std::size_t i) {
  int result = value(step, 0, i);
  for (int rank = 1; rank < size; ++rank) {
    const int part = value(step, rank, i);
    if (step.options.op == ReduceOp::sum) result += part;
    if (step.options.op == ReduceOp::min) result = std::min(result, part);
    if (step.options.op == ReduceOp::max) result = std::max(result, part);
  }
  return result;
}

// Elements of this member's input and output.
std::size_t input_count(const ProgramStep& step, int size) {
  return step.kind == StepKind::reduce_scatter ? step.count * static_cast<std::size_t>(size) : step.count;
}

std::size_t output_count(const ProgramStep& step, int size) {
  return step.kind == StepKind::all_gather ? step.count * static_cast<std::size_t>(size) : step.count;
}

int expected(const ProgramStep& step, int member, int size, std::size_t i) {
  switch (step.kind) {
    case StepKind::all_reduce:
    case StepKind::list: return reduced(step, size, i);
    case StepKind::reduce_scatter: return reduced(step, size, i + static_cast<std::size_t>(member) * step.count);
    case StepKind::all_gather: return value(step, static_cast<int>(i / step.count), i % step.count);
    case StepKind::shift: return value(step, (member + size - 1) % size, i);
    default: return value(step, step.options.root, i);
  }
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

StepBuffers::StepBuffers(const ProgramStep& step, int member, int size)
    : step_(step),
      member_(member),
      size_(size),
      input_(input_count(step, size) * element_bytes(step.type)),
      output_(output_count(step, size) * element_bytes(step.type), std::byte{0xEE}) {
  for (std::size_t i = 0; i < input_count(step, size); ++i) write(step.type, input_.data(), i, value(step, member, i));
  // A broadcast works in place.
  if (step.kind == StepKind::broadcast && member == step.options.root) output_ = input_;
}

std::string StepBuffers::check() const {
  if (step_.kind == StepKind::message && member_ != step_.to) return {};
  ByteVector wanted(element_bytes(step_.type));
  for (std::size_t i = 0; i < output_count(step_, size_); ++i) {
    const int number = expected(step_, member_, size_, i);
    write(step_.type, wanted.data(), 0, number);
    const std::byte* got = output_.data() + i * wanted.size();
    if (std::memcmp(got, wanted.data(), wanted.size()) == 0) continue;
    // Every value is encoded twice; the bound of 8 bits over the largest range.
    const double tolerance = step_.options.compression ? 2.0 * 28 * size_ / 255 : 0;
    const auto actual = static_cast<double>(element(step_.type, got, 0));
    if (std::abs(actual - number) <= tolerance) continue;
    return fmt::format("step {}, member {} of {}, element {}: {} instead of {}", step_.id, member_, size_, i, actual,
                       number);
  }
  return {};
}

}  // namespace qccl::testing
