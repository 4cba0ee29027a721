// Who keeps others waiting: a graph of the ranks of a job, with an edge from each rank that waits to those that it
// waits for. The culprit is the rank without an edge of its own from which most ranks are kept.
//
// A rank waits for the members of its call's group that have not posted a call of that number, or that do not answer.
// If there are none, all are in the call, and it waits for those whose data it lacks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "qccl/status.h"

namespace qccl {
namespace {

constexpr std::size_t kMostNamed = 8;  // ranks in a sentence

struct Wait {
  const RankStatus* rank = nullptr;
  const CallStatus* call = nullptr;  // the oldest
  std::set<int> for_ranks;
};

std::string name_of(const CallStatus& call) {
  return fmt::format("{} #{} of '{}'", call.operation, call.number, call.group);
}

// "rank 3", "ranks 1, 4", "12 ranks"
std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() > kMostNamed) return fmt::format("{} ranks", ranks.size());
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string seconds_text_of(double seconds) { return fmt::format("{:.1f} s", seconds); }

class WaitGraph {
 public:
  WaitGraph(std::span<const RankStatus> ranks, double least_seconds) {
    for (const RankStatus& rank : ranks) by_rank_[rank.rank] = &rank;
    for (const RankStatus& rank : ranks) {
      const auto call =
          std::ranges::find_if(rank.calls, [&](const auto& each) { return each.seconds >= least_seconds; });
      if (call != rank.calls.end()) waits_[rank.rank] = {&rank, &*call, awaited(rank, *call)};
    }
  }

  const std::map<int, Wait>& waits() const { return waits_; }
  const RankStatus* find(int rank) const {
    const auto found = by_rank_.find(rank);
    return found == by_rank_.end() ? nullptr : found->second;
  }
  // The ranks that wait for each rank which itself waits for none, directly or not.
  std::map<int, std::vector<int>> kept_by() const {
    std::map<int, std::vector<int>> kept;
    for (const auto& [rank, wait] : waits_) {
      for (const int root : roots_of(rank)) kept[root].push_back(rank);
    }
    return kept;
  }

 private:
  std::set<int> awaited(const RankStatus& rank, const CallStatus& call) const {
    std::set<int> late;
    for (const auto& [number, other] : by_rank_) {
      if (number == rank.rank || call.is_message) continue;
      const auto group = std::ranges::find(other->groups, call.group_id, &GroupStatus::id);
      if (group != other->groups.end() && group->calls < call.number) late.insert(number);
    }
    for (const int awaited : call.waits_for) {
      const RankStatus* const other = find(awaited);
      if (other != nullptr && !other->answered) late.insert(awaited);
    }
    if (late.empty()) late.insert(call.waits_for.begin(), call.waits_for.end());
    late.erase(rank.rank);
    return late;
  }

  bool is_root(int rank) const {
    const auto found = waits_.find(rank);
    return found == waits_.end() || found->second.for_ranks.empty();
  }

  std::set<int> roots_of(int from) const {
    std::set<int> seen{from};
    std::set<int> roots;
    std::vector<int> next{from};
    while (!next.empty()) {
      const int rank = next.back();
      next.pop_back();
      if (rank != from && is_root(rank)) roots.insert(rank);
      if (is_root(rank)) continue;
      for (const int awaited : waits_.at(rank).for_ranks) {
        if (seen.insert(awaited).second) next.push_back(awaited);
      }
    }
    return roots;
  }

  std::map<int, const RankStatus*> by_rank_;
  std::map<int, Wait> waits_;
};

// What the rank does instead of the call that `wait` waits in.
std::string explain(const RankStatus* rank, const Wait& wait) {
  if (rank == nullptr || !rank->answered) {
    const std::string why = rank == nullptr || rank->absence.empty() ? "does not answer" : rank->absence;
    return fmt::format("which {}", why);
  }
  const auto group = std::ranges::find(rank->groups, wait.call->group_id, &GroupStatus::id);
  std::string text = fmt::format("which takes part in {}", name_of(*wait.call));
  if (wait.call->is_message) text = fmt::format("which has not answered {}", name_of(*wait.call));
  if (!wait.call->is_message && group == rank->groups.end()) {
    text = fmt::format("which has not opened group '{}'", wait.call->group);
  } else if (!wait.call->is_message && group->calls < wait.call->number) {
    text = fmt::format("which has not called {}", name_of(*wait.call));
  }
  if (!rank->calls.empty()) {
    const CallStatus& own = rank->calls.front();
    return text + fmt::format(" and is in {} for {}", name_of(own), seconds_text_of(own.seconds));
  }
  if (rank->last.operation.empty()) return text;
  return text + fmt::format("; its last call, {} #{} of '{}', ended {} ago", rank->last.operation, rank->last.number,
                            rank->last.group, seconds_text_of(rank->last.seconds));
}

HoldUp no_single_rank(const WaitGraph& graph) {
  HoldUp found;
  std::set<std::string> calls;
  const Wait* slowest = nullptr;
  const auto share = [](const CallStatus& call) {
    return call.expected_bytes == 0
               ? 1
               : static_cast<double>(call.received_bytes) / static_cast<double>(call.expected_bytes);
  };
  for (const auto& [rank, wait] : graph.waits()) {
    found.waiting.push_back(rank);
    found.seconds = std::max(found.seconds, wait.call->seconds);
    calls.insert(name_of(*wait.call));
    if (slowest == nullptr || share(*wait.call) < share(*slowest->call)) slowest = &wait;
  }
  if (slowest == nullptr) return found;
  const std::string all = ranks_text(found.waiting);
  if (calls.size() > 1) {
    found.text = fmt::format("{} wait for each other for {}, in different calls: rank {} in {}, rank {} in {}", all,
                             seconds_text_of(found.seconds), graph.waits().begin()->first,
                             name_of(*graph.waits().begin()->second.call), graph.waits().rbegin()->first,
                             name_of(*graph.waits().rbegin()->second.call));
    return found;
  }
  const bool is_one = found.waiting.size() == 1 && slowest->for_ranks.empty();
  found.text = fmt::format("{} {} in {} for {}{}", all, found.waiting.size() == 1 ? "is" : "are", *calls.begin(),
                           seconds_text_of(found.seconds), is_one ? "" : ", and none waits outside it");
  if (slowest->call->expected_bytes > 0) {
    found.text += fmt::format("; rank {} has received the least, {} of {} bytes", slowest->rank->rank,
                              slowest->call->received_bytes, slowest->call->expected_bytes);
  }
  return found;
}

}  // namespace

HoldUp find_hold_up(std::span<const RankStatus> ranks, double least_seconds) {
  const WaitGraph graph(ranks, least_seconds);
  const auto kept = graph.kept_by();
  const auto most = std::ranges::max_element(kept, {}, [](const auto& entry) { return entry.second.size(); });
  if (most == kept.end()) return no_single_rank(graph);
  HoldUp found{.rank = most->first, .waiting = most->second, .seconds = 0, .text = {}};
  const Wait* direct = nullptr;  // the oldest wait for the rank itself
  for (const int rank : found.waiting) {
    const Wait& wait = graph.waits().at(rank);
    found.seconds = std::max(found.seconds, wait.call->seconds);
    const bool is_direct = wait.for_ranks.contains(found.rank);
    if (is_direct && (direct == nullptr || wait.call->seconds > direct->call->seconds)) direct = &wait;
  }
  const RankStatus* const culprit = graph.find(found.rank);
  const std::string host = culprit == nullptr || culprit->host.empty() ? "" : fmt::format(" on {}", culprit->host);
  found.text = fmt::format("{} {} for rank {}{}, {}", ranks_text(found.waiting),
                           found.waiting.size() == 1 ? "waits" : "wait", found.rank, host, explain(culprit, *direct));
  return found;
}

}  // namespace qccl
