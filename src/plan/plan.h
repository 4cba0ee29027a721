// A collective as data. A plan says what each rank does (its schedule). It is parametric in the slice, so a plan for 1
// GiB is as small as one for 1 KiB.
//
// A schedule is a set of lanes. A lane walks the slices of one chunk in order and runs its steps for each slice in
// order; lanes of a schedule run independently, or one after another, whole or slice by slice. Every frame belongs to a
// stream: the slices of one chunk from one rank to another in one phase. Sums are added in the order of a lane's steps,
// whatever arrives first: ranks 0..N-1 in one-shot and scatter-reduce; where partial sums travel, another order, the
// same for all ranks.
//
// Pure functions of the request: every rank builds the same plan and takes its own schedule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "codec/geometry.h"
#include "qccl/types.h"

namespace qccl::plan {

enum class StepKind : std::uint8_t {
  send_input,    // encode(input slice) to `peers`
  local_reduce,  // accumulate this rank's input slice
  recv_reduce,   // accumulate the slice that peers[0] sends in `phase`
  send_sum,      // encode(the sum so far) to `peers`
  finish,        // output slice = the accumulated one, averaged and rounded
  send_result,   // encode(output slice) to `peers`; the output becomes decode(encode(output))
  recv_copy,     // output slice = the one that peers[0] sends in `phase`
  forward,       // the frame just received, unchanged, to `peers`
  local_copy,    // output slice = input slice
};

// A send of what this rank has made; a forward passes on what another has.
constexpr bool makes_payload(StepKind kind) {
  return kind == StepKind::send_input || kind == StepKind::send_sum || kind == StepKind::send_result;
}
constexpr bool sends(StepKind kind) { return makes_payload(kind) || kind == StepKind::forward; }
constexpr bool receives(StepKind kind) { return kind == StepKind::recv_reduce || kind == StepKind::recv_copy; }

// A frame has 15 bits for the phase.
inline constexpr std::uint16_t kMaxPhase = 0x7FFF;

struct Step {
  StepKind kind;
  std::uint16_t phase = 0;
  std::vector<int> peers{};  // group ranks, in the order to serve them
  // local_reduce, local_copy: uses decode(encode(input)), so that this rank has the same values as its peers. send_sum
  // of uncompressed sums: continues with the values sent, which 16-bit floats round.
  bool quantized = false;
  // Sends and receives: uncompressed, whatever the call's codec.
  bool raw = false;
};

// Where a lane's chunk lies in the caller's buffers, in elements.
struct Lane {
  std::uint32_t chunk = 0;  // identifies it between ranks
  std::uint64_t input_begin = 0;
  std::uint64_t output_begin = 0;
  std::uint64_t count = 0;
  std::vector<Step> steps{};
  bool scratch = false;         // the "output" is the engine's memory: this rank only passes it on
  bool slice_by_slice = false;  // with `after`: slice i waits for slice i of that lane; beyond its last, for its end
  int after = -1;               // index of an earlier lane in this schedule that must end first; -1: none
};

// How many of the lane's `slices` may begin when the lane that it is `after` has ended `ended` of its `leading` ones.
constexpr std::uint64_t open_slices(const Lane& lane, std::uint64_t slices, std::uint64_t ended,
                                    std::uint64_t leading) {
  if (ended == leading) return slices;
  return lane.slice_by_slice ? std::min(ended, slices) : 0;
}

struct RankSchedule {
  std::vector<Lane> lanes;
};

// Everything a plan depends on. `algorithm` is never automatic here.
struct Request {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::one_shot;
  int world = 1;
  int root = 0;                      // broadcast, reduce, gather, scatter
  std::uint64_t count = 0;           // elements, as the public call counts them; unused with `counts`
  std::uint32_t bucket_size = 1;     // 1 when nothing is compressed
  std::uint64_t slice_elements = 0;  // at least 1
  bool compressed = false;
  int lanes =
      1;  // of an all_reduce whose data has no owners (one-shot, recursive doubling): how many slices go at once
  // Each rank's own count (the v forms), the same list on all ranks. all_to_all: the counts this rank sends to each
  // rank, then those it receives from each.
  std::vector<std::uint64_t> counts{};
  std::vector<int> hosts{};  // each rank's host; hierarchical only; empty: all on one
  // What each rank owns of an all_reduce with uses_shares(), as a part of their sum; empty: equal chunks.
  std::vector<int> shares{};
};

// Where the ranks of a group are. A site is hosts that are near each other and far from those of other sites.
struct Layout {
  Layout(std::vector<int> host_of_rank = {}, std::vector<int> site_of_rank = {})
      : hosts(std::move(host_of_rank)), sites(std::move(site_of_rank)) {}

  std::vector<int> hosts;  // of each rank
  std::vector<int> sites;  // of each rank; empty: all are near each other, or all are far
};

// The algorithms available for the collective (algorithms/registry.h).
std::vector<Algorithm> algorithms_of(Collective collective);
bool has_algorithm(Collective collective, Algorithm algorithm);

// The algorithm built when `algorithm` is requested: compressed recursive doubling is one-shot.
Algorithm built_for(Algorithm algorithm, bool compressed);

// The algorithm divides the collective's data by Request::shares; others ignore them.
bool uses_shares(Collective collective, Algorithm algorithm);

// The schedule of `rank`. Lanes over empty chunks are left out, except in all_to_all, where only the two ranks involved
// know. A call without any elements becomes a barrier, whose frames have no payload.
RankSchedule schedule_of(const Request& request, int rank);

// The piece length that the streams of an all_to_all announce, in elements: less than 2^47, which no memory holds.
constexpr std::uint64_t length_of_piece(std::uint16_t phase, std::uint32_t chunk) {
  return std::uint64_t{phase} << 32 | chunk;
}

// Request::lanes for slices of so many encoded bytes: as many as the window holds of each of `world` - 1 ranks; 1 if
// ranks are near (a window of 0).
int lanes_of_window(std::uint64_t window_bytes, int world, std::uint64_t slice_bytes);
// The encoded bytes that each of the other ranks may have on their way to a distant rank with that window.
std::uint64_t stream_window(std::uint64_t window_bytes, int world);
// The most encoded bytes of a slice. A rank adds in rank order what it receives, so that a stream often waits for
// another: it stays in motion only if its window holds several slices. kMaxSliceBytes if ranks are near (no window).
std::size_t most_slice_bytes(std::uint64_t window_bytes, int world);

// The chunks of the request's data, which streams carry. One chunk per owner, if chunks have owners.
std::vector<Range> chunks(const Request& request);

// A line for each lane, with all that it has, and for each of its steps, for people.
std::string to_string(const RankSchedule& schedule);
const char* to_string(StepKind kind);

}  // namespace qccl::plan
