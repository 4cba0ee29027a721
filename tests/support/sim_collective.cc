#include "support/sim_collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace qccl::testing {
namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr auto kGuard = std::byte{0xA5};

std::string hex(const std::byte* bytes, std::size_t size) {
  std::string text;
  for (std::size_t i = size; i > 0; --i) text += fmt::format("{:02x}", static_cast<int>(bytes[i - 1]));
  return text;
}

}  // namespace

RankBuffers::Memory RankBuffers::allocate(std::size_t size, std::size_t offset) {
  Memory memory;
  memory.size = size;
  memory.bytes.assign(size + 2 * kGuardBytes + 64 + offset, kGuard);
  auto address = reinterpret_cast<std::uintptr_t>(memory.bytes.data()) + kGuardBytes;
  const std::size_t padding = (64 - address % 64) % 64;
  memory.begin = memory.bytes.data() + kGuardBytes + padding + offset;
  return memory;
}

bool RankBuffers::guards_stand(const Memory& memory) {
  const auto is_guard = [](std::byte byte) { return byte == kGuard; };
  const std::byte* end = memory.begin + memory.size;
  return memory.bytes.empty() ||
         (std::all_of(memory.bytes.data(), const_cast<const std::byte*>(memory.begin), is_guard) &&
          std::all_of(end, memory.bytes.data() + memory.bytes.size(), is_guard));
}

RankBuffers::RankBuffers(const engine::ResolvedCall& call, int rank, int world, const ByteVector& input,
                         const Placement& placement)
    : original_(input), in_place_(placement.in_place || call.collective == Collective::broadcast) {
  const std::size_t input_bytes = engine::input_elements(call, world, rank) * element_bytes(call.type);
  output_bytes_ = engine::output_elements(call, world, rank) * element_bytes(call.type);
  in_place_ &= call.collective != Collective::all_to_all;
  original_.resize(input_bytes);
  const std::size_t part = has_pieces(call.collective) ? engine::piece_begin(call, rank) * element_bytes(call.type) : 0;
  const bool is_smaller_input = input_bytes < output_bytes_;
  const std::size_t input_at = in_place_ && is_smaller_input ? part : 0;
  const std::size_t output_at = in_place_ && !is_smaller_input && output_bytes_ > 0 ? part : 0;
  first_ = allocate(in_place_ ? std::max(input_bytes, output_bytes_) : input_bytes, placement.input_offset);
  input_ = first_.begin + input_at;
  output_ = first_.begin + output_at;
  if (!original_.empty()) std::memcpy(first_.begin + input_at, original_.data(), original_.size());
  if (in_place_) return;
  second_ = allocate(output_bytes_, placement.output_offset);
  output_ = second_.begin;
}

std::string RankBuffers::damage() const {
  if (!guards_stand(first_)) return "a guard of the input was overwritten";
  if (!guards_stand(second_)) return "a guard of the output was overwritten";
  const bool changed = (!in_place_ || output_bytes_ == 0) && !original_.empty() &&
                       std::memcmp(first_.begin, original_.data(), original_.size()) != 0;
  return changed ? "the input was changed" : "";
}

std::uint64_t most_input_elements(const engine::ResolvedCall& call, int world) {
  std::uint64_t most = 0;
  for (int rank = 0; rank < world; ++rank) most = std::max(most, engine::input_elements(call, world, rank));
  return most;
}

CollectiveResult run_collective(SimWorld& world, const engine::ResolvedCall& call,
                                const std::vector<ByteVector>& inputs, const Placement& placement) {
  return run_collective(world, std::vector<engine::ResolvedCall>(inputs.size(), call), inputs, placement);
}

CollectiveResult run_collective(SimWorld& world, const std::vector<engine::ResolvedCall>& calls,
                                const std::vector<ByteVector>& inputs, const Placement& placement) {
  std::vector<RankBuffers> buffers;
  buffers.reserve(inputs.size());
  std::vector<SimWork> works;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    const int at = static_cast<int>(rank);
    buffers.emplace_back(calls[rank], at, world.size(), inputs[rank], placement);
    works.push_back(world.post(at, calls[rank], {buffers.back().input(), buffers.back().output()}));
  }
  CollectiveResult outcome;
  if (!world.run(works)) {
    outcome.problem = "the simulation did not end";
    return outcome;
  }
  for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
    const std::string damage = buffers[rank].damage();
    if (works[rank]->failure()) outcome.problem = works[rank]->failure()->message;
    if (!damage.empty()) outcome.problem = fmt::format("rank {}: {}", rank, damage);
    outcome.outputs.push_back(buffers[rank].result());
  }
  return outcome;
}

std::string difference(DataType type, const std::vector<ByteVector>& outputs, const std::vector<ByteVector>& expected) {
  const std::size_t size = element_bytes(type);
  if (outputs.size() != expected.size()) return "not every rank has a result";
  for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
    if (outputs[rank] == expected[rank]) continue;
    if (outputs[rank].size() != expected[rank].size()) return fmt::format("rank {}: another size", rank);
    const auto [at, other] = std::mismatch(outputs[rank].begin(), outputs[rank].end(), expected[rank].begin());
    const auto i = static_cast<std::size_t>(at - outputs[rank].begin()) / size;
    return fmt::format("rank {}, element {}: {} instead of {}", rank, i, hex(outputs[rank].data() + i * size, size),
                       hex(expected[rank].data() + i * size, size));
  }
  return {};
}

}  // namespace qccl::testing
