// What the order of lanes costs on the wire.
#include <algorithm>
#include <functional>
#include <vector>

#include "plan/cost/cost.h"

namespace qccl::plan {

double longest_passage(const RankSchedule& schedule, std::uint64_t slice_elements,
                       const std::function<double(const Lane& lane)>& wire_bytes) {
  if (std::ranges::all_of(schedule.lanes, [](const Lane& lane) { return lane.after < 0; })) return 0;
  struct Passage {
    double begin = 0;  // in bytes that have passed before
    double end = 0;
    double slice = 0;
  };
  std::vector<Passage> passages;
  double longest = 0;
  for (const Lane& lane : schedule.lanes) {
    const double bytes = wire_bytes(lane);
    const std::uint64_t slices = std::max<std::uint64_t>(1, slice_count(lane.count, slice_elements));
    Passage own{0, bytes, bytes / static_cast<double>(slices)};
    if (lane.after >= 0) {
      const Passage& leader = passages[static_cast<std::size_t>(lane.after)];
      own.begin = lane.slice_by_slice ? leader.begin + leader.slice : leader.end;
      own.end = std::max(own.begin + bytes, leader.end + own.slice);
    }
    longest = std::max(longest, own.end);
    passages.push_back(own);
  }
  return longest;
}

}  // namespace qccl::plan
