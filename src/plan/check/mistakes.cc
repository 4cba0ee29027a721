#include "plan/check/mistakes.h"

#include <algorithm>
#include <array>

#include "plan/check/expectation.h"

namespace qccl::plan {
namespace {

constexpr std::array kAll = {Mistake::missing_contribution, Mistake::double_contribution, Mistake::different_order,
                             Mistake::unreceived_send,      Mistake::overwritten_input,   Mistake::crossed_waits};

bool adds(const Step& step) { return step.kind == StepKind::local_reduce || step.kind == StepKind::recv_reduce; }
bool receives(const Step& step) { return step.kind == StepKind::recv_copy || step.kind == StepKind::recv_reduce; }

using Steps = std::vector<Step>;

Steps::iterator find(Steps& steps, StepKind kind) {
  return std::find_if(steps.begin(), steps.end(), [kind](const Step& step) { return step.kind == kind; });
}

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

// The last two of at least three: the first two may change places without changing the sum.
bool swap_additions(Steps& steps) {
  const auto last = std::find_if(steps.rbegin(), steps.rend(), adds);
  if (last == steps.rend() || std::count_if(steps.begin(), steps.end(), adds) < 3) return false;
  std::iter_swap(last, std::next(last));
  return true;
}

bool send_late(Steps& steps) {
  const auto send = find(steps, StepKind::send_input);
  const auto write = find(steps, StepKind::finish);
  if (send == steps.end() || write == steps.end() || send > write) return false;
  std::rotate(send, send + 1, write + 1);
  return true;
}

template <class Change>
bool change_first(std::vector<Role>& roles, const Change& change) {
  for (Role& role : roles) {
    for (Lane& lane : role.lanes) {
      if (lane.count > 0 && change(lane.steps)) return true;
    }
  }
  return false;
}

// A whole lane that only receives.
bool drop_receiver(std::vector<Role>& roles) {
  for (Role& role : roles) {
    for (std::size_t at = 0; at < role.lanes.size(); ++at) {
      const Steps& steps = role.lanes[at].steps;
      const auto depends = [&](const Lane& lane) { return lane.after >= static_cast<int>(at); };
      const bool sends = std::any_of(steps.begin(), steps.end(),
                                     [](const Step& step) { return !step.peers.empty() && !receives(step); });
      if (sends || !receives(steps[0]) || std::any_of(role.lanes.begin(), role.lanes.end(), depends)) continue;
      role.lanes.erase(role.lanes.begin() + static_cast<std::ptrdiff_t>(at));
      return true;
    }
  }
  return false;
}

bool receive_first(Role& role) {
  std::vector<Lane> ordered;
  for (const bool receiving : {true, false}) {
    for (Lane& lane : role.lanes) {
      if (receives(lane.steps[0]) != receiving) continue;
      lane.after = static_cast<int>(ordered.size()) - 1;
      ordered.push_back(lane);
    }
  }
  role.lanes = std::move(ordered);
  return !role.lanes.empty() && receives(role.lanes[0].steps[0]);
}

// Only where all of them have something to receive.
bool cross_waits(std::vector<Role>& roles) {
  std::vector<Role> crossed = roles;
  for (Role& role : crossed) {
    if (!receive_first(role)) return false;
  }
  roles = std::move(crossed);
  return true;
}

}  // namespace

std::span<const Mistake> all_mistakes() { return kAll; }

std::string_view to_string(Mistake mistake) {
  switch (mistake) {
    case Mistake::missing_contribution: return "missing_contribution";
    case Mistake::double_contribution: return "double_contribution";
    case Mistake::different_order: return "different_order";
    case Mistake::unreceived_send: return "unreceived_send";
    case Mistake::overwritten_input: return "overwritten_input";
    case Mistake::crossed_waits: return "crossed_waits";
  }
  return "?";
}

bool plant(Mistake mistake, const Request& request, std::vector<Role>& roles) {
  switch (mistake) {
    case Mistake::missing_contribution: return change_first(roles, leave_out);
    case Mistake::double_contribution: return change_first(roles, add_twice);
    case Mistake::different_order:
      // Elsewhere one rank alone decides on the order.
      return adds_in_rank_order(request.algorithm) && change_first(roles, swap_additions);
    case Mistake::unreceived_send: return drop_receiver(roles);
    case Mistake::overwritten_input: return change_first(roles, send_late);
    case Mistake::crossed_waits: return cross_waits(roles);
  }
  return false;
}

}  // namespace qccl::plan
