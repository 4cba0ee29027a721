#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace qccl::plan {
namespace {

// Every other rank, starting behind `rank`, so that ranks do not all send to rank 0 first.
std::vector<int> others(int rank, int world) {
  std::vector<int> peers;
  for (int distance = 1; distance < world; ++distance) peers.push_back((rank + distance) % world);
  return peers;
}

// Steps that accumulate all ranks' slices in rank order; `phase` brings the others'.
std::vector<Step> reduce_steps(int rank, int world, std::uint16_t phase, bool quantize_own) {
  std::vector<Step> steps;
  for (int source = 0; source < world; ++source) {
    if (source == rank) {
      steps.push_back({StepKind::local_reduce, phase, {}, quantize_own});
    } else {
      steps.push_back({StepKind::recv_reduce, phase, {source}});
    }
  }
  steps.push_back({StepKind::finish, phase, {}});
  return steps;
}

class RoleBuilder {
 public:
  RoleBuilder(const Request& request, int rank) : request_(request), rank_(rank), chunks_(chunks(request)) {}

  Role build() {
    // Without elements there is nothing to compute, but the ranks' calls must still meet.
    if (request_.count == 0) {
      barrier();
      return std::move(role_);
    }
    switch (request_.collective) {
      case Collective::all_reduce:
        request_.algorithm == Algorithm::one_shot ? all_reduce_one_shot() : all_reduce_sra();
        break;
      case Collective::reduce_scatter: scatter_reduce(/*gather=*/false); break;
      case Collective::all_gather: all_gather(); break;
      case Collective::broadcast:
        request_.algorithm == Algorithm::one_shot ? broadcast_one_shot() : broadcast_sra();
        break;
      case Collective::barrier: barrier(); break;
    }
    return std::move(role_);
  }

 private:
  void add(std::uint32_t chunk, std::uint64_t input_begin, std::uint64_t output_begin, std::vector<Step> steps) {
    const std::uint64_t count = chunks_[chunk].count;
    if (count == 0 && request_.count > 0) return;
    role_.lanes.push_back({chunk, input_begin, output_begin, count, std::move(steps)});
  }

  // A lane whose chunk lies at the same place in input and output.
  void add_in_place(std::uint32_t chunk, std::vector<Step> steps) {
    add(chunk, chunks_[chunk].begin, chunks_[chunk].begin, std::move(steps));
  }

  void all_reduce_one_shot() {
    // One lane: in place, a slice must have left before its sum overwrites it.
    std::vector<Step> steps;
    if (request_.world > 1) steps.push_back({StepKind::send_input, 0, others(rank_, request_.world)});
    auto reduce = reduce_steps(rank_, request_.world, 0, request_.compressed);
    steps.insert(steps.end(), reduce.begin(), reduce.end());
    add_in_place(0, std::move(steps));
  }

  void all_reduce_sra() { scatter_reduce(/*gather=*/true); }

  // Phase 0 brings chunk c to rank c; with `gather`, phase 1 brings the result to everybody.
  void scatter_reduce(bool gather) {
    const int world = request_.world;
    for (const int peer : others(rank_, world)) {
      const auto chunk = static_cast<std::uint32_t>(peer);
      add(chunk, chunks_[chunk].begin, 0, {{StepKind::send_input, 0, {peer}}});
    }
    auto own = reduce_steps(rank_, world, 0, false);
    const auto own_chunk = static_cast<std::uint32_t>(rank_);
    const std::uint64_t own_begin = chunks_[own_chunk].begin;
    if (!gather) return add(own_chunk, own_begin, 0, std::move(own));
    if (world > 1) own.push_back({StepKind::send_result, 1, others(rank_, world)});
    add(own_chunk, own_begin, own_begin, std::move(own));
    for (const int peer : others(rank_, world)) {
      add_in_place(static_cast<std::uint32_t>(peer), {{StepKind::recv_copy, 1, {peer}}});
    }
  }

  void all_gather() {
    const auto own = static_cast<std::uint32_t>(rank_);
    if (request_.world > 1) add(own, 0, 0, {{StepKind::send_input, 0, others(rank_, request_.world)}});
    add(own, 0, chunks_[own].begin, {{StepKind::local_copy, 0, {}}});
    for (const int peer : others(rank_, request_.world)) {
      const auto chunk = static_cast<std::uint32_t>(peer);
      add(chunk, 0, chunks_[chunk].begin, {{StepKind::recv_copy, 0, {peer}}});
    }
  }

  void broadcast_one_shot() {
    if (rank_ != request_.root) return add_in_place(0, {{StepKind::recv_copy, 0, {request_.root}}});
    // A lane for each, so that a slow receiver holds up nobody else.
    for (const int peer : others(rank_, request_.world)) add_in_place(0, {{StepKind::send_input, 0, {peer}}});
  }

  // Phase 0: the root gives every rank one chunk; phase 1: that rank passes it on to the rest.
  // The root's own chunk goes to everybody in phase 1.
  void broadcast_sra() {
    const int world = request_.world;
    const int root = request_.root;
    for (const int peer : others(rank_, world)) {
      const auto chunk = static_cast<std::uint32_t>(peer);
      if (rank_ == root) {
        add_in_place(chunk, {{StepKind::send_input, 0, {peer}}});
      } else {
        add_in_place(chunk, {{StepKind::recv_copy, 1, {peer}}});
      }
    }
    const auto own = static_cast<std::uint32_t>(rank_);
    auto rest = others(rank_, world);
    if (rank_ == root) {
      if (world > 1) add_in_place(own, {{StepKind::send_input, 1, std::move(rest)}});
      return;
    }
    rest.erase(std::find(rest.begin(), rest.end(), root));
    std::vector<Step> steps{{StepKind::recv_copy, 0, {root}}};
    if (!rest.empty()) steps.push_back({StepKind::forward, 1, std::move(rest)});
    add_in_place(own, std::move(steps));
  }

  void barrier() {
    for (const int peer : others(rank_, request_.world)) {
      add_in_place(0, {{StepKind::send_input, 0, {peer}}});
      add_in_place(0, {{StepKind::recv_copy, 0, {peer}}});
    }
  }

  const Request& request_;
  const int rank_;
  const std::vector<Range> chunks_;
  Role role_;
};

// `world` chunks of `count` elements each: the caller's own layout.
std::vector<Range> equal_ranges(std::uint64_t count, int world) {
  std::vector<Range> ranges;
  for (int rank = 0; rank < world; ++rank) ranges.push_back({static_cast<std::uint64_t>(rank) * count, count});
  return ranges;
}

}  // namespace

std::vector<Range> chunks(const Request& request) {
  switch (request.collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter: return equal_ranges(request.count, request.world);
    case Collective::barrier: return {{0, 0}};
    case Collective::all_reduce:
    case Collective::broadcast: break;
  }
  if (request.algorithm == Algorithm::one_shot) return {{0, request.count}};
  return chunk_ranges(request.count, request.world, request.bucket_size);
}

Role make_role(const Request& request, int rank) { return RoleBuilder(request, rank).build(); }

const char* to_string(StepKind kind) {
  switch (kind) {
    case StepKind::send_input: return "send_input";
    case StepKind::local_reduce: return "local_reduce";
    case StepKind::recv_reduce: return "recv_reduce";
    case StepKind::finish: return "finish";
    case StepKind::send_result: return "send_result";
    case StepKind::recv_copy: return "recv_copy";
    case StepKind::forward: return "forward";
    case StepKind::local_copy: return "local_copy";
  }
  return "?";
}

std::string to_string(const Role& role) {
  std::string text;
  for (const Lane& lane : role.lanes) {
    text += fmt::format("chunk {} [{}, {}):\n", lane.chunk, lane.output_begin, lane.output_begin + lane.count);
    for (const Step& step : lane.steps) {
      text += fmt::format("  {} phase {} peers [{}]\n", to_string(step.kind), step.phase, fmt::join(step.peers, " "));
    }
  }
  return text;
}

}  // namespace qccl::plan
