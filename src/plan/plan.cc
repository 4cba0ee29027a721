#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.h"
#include "plan/algorithms/builder.h"
#include "plan/algorithms/hosts.h"

namespace qccl::plan {
namespace {

constexpr std::array kAllReduce = {
    Algorithm::one_shot,           Algorithm::sra,         Algorithm::ring, Algorithm::tree,
    Algorithm::recursive_doubling, Algorithm::hierarchical};
constexpr std::array kWholeRooted = {Algorithm::one_shot, Algorithm::sra, Algorithm::binomial, Algorithm::hierarchical};
constexpr std::array kRooted = {Algorithm::one_shot, Algorithm::binomial};
constexpr std::array kAround = {Algorithm::one_shot, Algorithm::ring, Algorithm::hierarchical};
constexpr std::array kExchange = {Algorithm::one_shot, Algorithm::pairwise};
constexpr std::array kOnly = {Algorithm::one_shot};

// The caller's own layout: one piece for each rank, in rank order.
std::vector<Range> piece_ranges(const Request& request) {
  std::vector<Range> ranges;
  std::uint64_t begin = 0;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(request.world); ++rank) {
    const std::uint64_t count = request.counts.empty() ? request.count : request.counts[rank];
    ranges.push_back({begin, count});
    begin += count;
  }
  return ranges;
}

bool is_empty(const Request& request) {
  if (request.counts.empty()) return request.count == 0;
  if (request.collective == Collective::all_to_all) return false;  // other ranks may have elements
  return std::accumulate(request.counts.begin(), request.counts.end(), std::uint64_t{0}) == 0;
}

// There is nothing to compute or move, but the ranks' calls must meet.
void build_meeting(Builder& builder) {
  for (const int peer : builder.others()) {
    builder.add(Lane{.steps = {{StepKind::send_input, 0, {peer}}}});
    builder.add(Lane{.steps = {{StepKind::recv_copy, 0, {peer}}}});
  }
}

int chunk_count(const Request& request) {
  switch (request.algorithm) {
    case Algorithm::sra:
    case Algorithm::ring: return request.world;
    case Algorithm::tree: return 2;
    case Algorithm::hierarchical: {
      const Hosts hosts(request);
      return hosts.owners() * static_cast<int>(home_hosts(request, hosts).size());
    }
    default: return 1;
  }
}

}  // namespace

std::span<const Algorithm> algorithms_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce: return kAllReduce;
    case Collective::reduce:
    case Collective::broadcast: return kWholeRooted;
    case Collective::gather:
    case Collective::scatter: return kRooted;
    case Collective::all_gather:
    case Collective::reduce_scatter: return kAround;
    case Collective::all_to_all: return kExchange;
    case Collective::barrier: break;
  }
  return kOnly;
}

std::vector<Range> chunks(const Request& request) {
  switch (request.collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all: return piece_ranges(request);
    case Collective::barrier: return {{0, 0}};
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast: break;
  }
  const int count = chunk_count(request);
  if (count == 1) return {{0, request.count}};
  return chunk_ranges(request.count, count, request.bucket_size);
}

RankSchedule schedule_of(const Request& request, int rank) {
  Builder builder(request, rank);
  if (is_empty(request)) {
    build_meeting(builder);
    return builder.take();
  }
  switch (built_for(request.algorithm, request.compressed)) {
    case Algorithm::sra: build_scatter_reduce(builder); break;
    case Algorithm::ring: build_ring(builder); break;
    case Algorithm::tree: build_tree(builder); break;
    case Algorithm::recursive_doubling: build_doubling(builder); break;
    case Algorithm::binomial: build_binomial(builder); break;
    case Algorithm::pairwise: build_exchange(builder, /*one_at_a_time=*/true); break;
    case Algorithm::hierarchical: build_hierarchical(builder); break;
    case Algorithm::one_shot: build_direct(builder); break;
    case Algorithm::automatic: QCCL_CHECK(false);
  }
  return builder.take();
}

// ---- Builder

std::vector<int> Builder::others() const {
  std::vector<int> peers;
  for (int distance = 1; distance < world(); ++distance) peers.push_back((rank_ + distance) % world());
  return peers;
}

bool Builder::is_left_out(int chunk) const { return chunks_[static_cast<std::size_t>(chunk)].count == 0; }

void Builder::add(int chunk, std::uint64_t input_begin, std::uint64_t output_begin, std::vector<Step> steps) {
  if (is_left_out(chunk)) return;
  const std::uint64_t count = chunks_[static_cast<std::size_t>(chunk)].count;
  add(Lane{static_cast<std::uint32_t>(chunk), input_begin, output_begin, count, std::move(steps)});
}

void Builder::add_scratch(int chunk, std::uint64_t input_begin, std::vector<Step> steps) {
  if (is_left_out(chunk)) return;
  add(chunk, input_begin, 0, std::move(steps));
  schedule_.lanes.back().scratch = true;
}

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

// ---- words

const char* to_string(StepKind kind) {
  switch (kind) {
    case StepKind::send_input: return "send_input";
    case StepKind::local_reduce: return "local_reduce";
    case StepKind::recv_reduce: return "recv_reduce";
    case StepKind::send_sum: return "send_sum";
    case StepKind::finish: return "finish";
    case StepKind::send_result: return "send_result";
    case StepKind::recv_copy: return "recv_copy";
    case StepKind::forward: return "forward";
    case StepKind::local_copy: return "local_copy";
  }
  return "?";
}

std::string to_string(const RankSchedule& schedule) {
  std::string text;
  for (const Lane& lane : schedule.lanes) {
    text += fmt::format("chunk {} [{}, {}){}:\n", lane.chunk, lane.output_begin, lane.output_begin + lane.count,
                        lane.scratch ? " in scratch" : "");
    for (const Step& step : lane.steps) {
      text += fmt::format("  {} phase {} peers [{}]{}\n", to_string(step.kind), step.phase, fmt::join(step.peers, " "),
                          step.raw ? " raw" : "");
    }
  }
  return text;
}

}  // namespace qccl::plan
