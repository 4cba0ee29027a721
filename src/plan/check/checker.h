// Runs a plan for all schedules symbolically and reports what is wrong with it.
//
// A slice's value records which ranks' inputs it holds, from which position, in which order and association they were
// added, and where it was encoded. Checked: every output element is made of exactly the inputs it should hold, each
// once; nothing else is written, and nothing twice; sums are in rank order if the algorithm promises that; ranks that
// hold the same part of a result hold the same value to the last addition and encoding; every frame sent is received,
// and every frame received is sent; no deadlock with one slot per stream and lanes in their order; no rank encodes an
// element of a reduction twice; in place, nothing is overwritten before its last read. All of it holds whether a rank's
// lanes have their turns from the first to the last or from the last to the first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"

namespace qccl::plan {

// InvalidArgument with the first violation found: rank, chunk, slice and step. `requests` is by rank: they differ only
// in the counts of an all_to_all.
Status check(const std::vector<Request>& requests, const std::vector<RankSchedule>& schedules);
Status check(const Request& request, const std::vector<RankSchedule>& schedules);

// ---- what each rank must hold after a collective, stated without any algorithm: the checker compares plans with this

// Some elements of one rank's input.
struct Source {
  int rank = 0;
  std::uint64_t begin = 0;
  friend auto operator<=>(const Source&, const Source&) = default;
};

// Elements of a rank's output, and the inputs whose sum (or copy) they are.
struct Expected {
  Range output;
  std::vector<Source> sources;  // in rank order
};

// `requests` by rank; they differ only in an all_to_all's counts.
std::vector<Expected> expected_output(const std::vector<Request>& requests, int rank);

// In place, output position = input position + this; empty if in place is not allowed or the rank has only one of the
// buffers.
std::optional<std::int64_t> in_place_shift(const Request& request, int rank);

// True if several ranks hold the same elements of the result, which must then be the same bytes.
bool is_shared_result(Collective collective);

// ---- the requests that the checker covers: an algorithm for every world up to a limit, with even and ragged counts,
// with and without compression, for several roots and host layouts

inline constexpr int kMaxCheckedWorld = 33;

// One call as the ranks make it: by rank, equal except for the counts of an all_to_all.
using Requests = std::vector<Request>;

// Calls `visit` for each call until one fails, and returns that failure.
Status for_each_request(Collective collective, Algorithm algorithm, int max_world,
                        const std::function<Status(const Requests&)>& visit);

// "all_reduce ring, world 5, 4099 elements in buckets of 100, compressed"
std::string describe(const Request& request);

// ---- mistakes that tests plant in plans, to see that the checker finds them

enum class Mistake : std::uint8_t {
  missing_contribution,  // a rank leaves its own input out of a sum
  double_contribution,   // a rank adds its own input twice
  different_order,       // a rank adds in a different order from the others
  unreceived_send,       // a rank does not receive a frame sent to it
  overwritten_input,     // a rank sends its input after its output has overwritten it
  crossed_waits,         // all ranks wait for each other before they send
};

std::span<const Mistake> all_mistakes();
std::string_view to_string(Mistake mistake);

// Plants it in the suitable place of this index; false if the plan has fewer.
bool plant(Mistake mistake, const Request& request, std::vector<RankSchedule>& schedules, int index = 0);

}  // namespace qccl::plan
