#include "plan/check/checker.h"

#include <algorithm>

#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

bool adds(const Step& step) { return step.kind == StepKind::local_reduce || step.kind == StepKind::recv_reduce; }
using Steps = std::vector<Step>;

Steps::iterator find(Steps& steps, StepKind kind) { return std::ranges::find(steps, kind, &Step::kind); }

bool leave_out(Steps& steps) {
  const auto own = find(steps, StepKind::local_reduce);
  if (own == steps.end()) return false;
  steps.erase(own);
  return true;
}

bool add_twice(Steps& steps) {
  const auto own = find(steps, StepKind::local_reduce);
  if (own == steps.end()) return false;
  const Step again = *own;
  steps.insert(own, again);
  return true;
}

// Swaps the last two of at least three: the first two may be swapped without changing the sum.
bool swap_additions(Steps& steps) {
  const auto last = std::find_if(steps.rbegin(), steps.rend(), adds);
  if (last == steps.rend() || std::count_if(steps.begin(), steps.end(), adds) < 3) return false;
  std::iter_swap(last, std::next(last));
  return true;
}

bool send_late(Steps& steps) {
  const auto changes_input = [](const Step& step) {
    return step.kind == StepKind::finish || (step.kind == StepKind::local_copy && step.quantized);
  };
  const auto send = find(steps, StepKind::send_input);
  const auto write = std::ranges::find_if(steps, changes_input);
  if (send == steps.end() || write == steps.end() || send > write) return false;
  std::rotate(send, send + 1, write + 1);
  return true;
}

bool change_lane(std::vector<RankSchedule>& schedules, int index, bool (*change)(Steps& steps)) {
  for (RankSchedule& schedule : schedules) {
    for (Lane& lane : schedule.lanes) {
      Steps changed = lane.steps;
      if (lane.count == 0 || !change(changed) || index-- > 0) continue;
      lane.steps = std::move(changed);
      return true;
    }
  }
  return false;
}

// Drops a whole lane that only receives.
bool drop_receiver(std::vector<RankSchedule>& schedules, int index) {
  for (RankSchedule& schedule : schedules) {
    for (std::size_t at = 0; at < schedule.lanes.size(); ++at) {
      const Steps& steps = schedule.lanes[at].steps;
      const auto sends_frames = [](const Step& step) { return !step.peers.empty() && !receives(step.kind); };
      const auto depends = [&](const Lane& lane) { return lane.after >= static_cast<int>(at); };
      const bool is_suitable = receives(steps[0].kind) && std::ranges::none_of(steps, sends_frames) &&
                               std::ranges::none_of(schedule.lanes, depends);
      if (!is_suitable || index-- > 0) continue;
      schedule.lanes.erase(schedule.lanes.begin() + static_cast<std::ptrdiff_t>(at));
      return true;
    }
  }
  return false;
}

bool receive_first(RankSchedule& schedule) {
  std::vector<Lane> ordered;
  for (const bool receiving : {true, false}) {
    for (Lane& lane : schedule.lanes) {
      if (receives(lane.steps[0].kind) != receiving) continue;
      lane.after = static_cast<int>(ordered.size()) - 1;
      lane.slice_by_slice = false;
      ordered.push_back(lane);
    }
  }
  schedule.lanes = std::move(ordered);
  return !schedule.lanes.empty() && receives(schedule.lanes[0].steps[0].kind);
}

// Only if all ranks have something to receive.
bool cross_waits(std::vector<RankSchedule>& schedules) {
  std::vector<RankSchedule> crossed = schedules;
  for (RankSchedule& schedule : crossed) {
    if (!receive_first(schedule)) return false;
  }
  schedules = std::move(crossed);
  return true;
}

}  // namespace

std::span<const Mistake> all_mistakes() {
  static constexpr Mistake kAll[] = {Mistake::missing_contribution, Mistake::double_contribution,
                                     Mistake::different_order,      Mistake::unreceived_send,
                                     Mistake::overwritten_input,    Mistake::crossed_waits};
  return kAll;
}

std::string_view to_string(Mistake mistake) {
  static constexpr std::string_view kNames[] = {"missing_contribution", "double_contribution", "different_order",
                                                "unreceived_send",      "overwritten_input",   "crossed_waits"};
  return kNames[static_cast<std::size_t>(mistake)];
}

bool plant(Mistake mistake, const Request& request, std::vector<RankSchedule>& schedules, int index) {
  switch (mistake) {
    case Mistake::missing_contribution: return change_lane(schedules, index, leave_out);
    case Mistake::double_contribution: return change_lane(schedules, index, add_twice);
    case Mistake::different_order:
      // With other algorithms a single rank decides on the order.
      return adds_in_rank_order(request.collective, request.algorithm) && change_lane(schedules, index, swap_additions);
    case Mistake::unreceived_send: return drop_receiver(schedules, index);
    case Mistake::overwritten_input: return change_lane(schedules, index, send_late);
    case Mistake::crossed_waits: return index == 0 && cross_waits(schedules);
  }
  return false;
}

}  // namespace qccl::plan
