// The critical path by formula equals the longest path through the plan itself.
#include "plan/algorithms/critical_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

namespace qccl::plan {
namespace {

// Runs all lanes' steps of one slice; each moment records the longest path that led to it.
class Walk {
 public:
  Walk(const Request& request, const std::vector<int>& hosts, const HopCosts& costs) : hosts_(hosts), costs_(costs) {
    for (int rank = 0; rank < request.world; ++rank) schedules_.push_back(schedule_of(request, rank));
  }

  CriticalPath longest() {
    std::vector<std::vector<std::pair<std::size_t, CriticalPath>>> lanes;  // next step, path so far
    for (const RankSchedule& schedule : schedules_) lanes.emplace_back(schedule.lanes.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
        for (std::size_t i = 0; i < lanes[rank].size(); ++i) {
          auto& [step, path] = lanes[rank][i];
          const Lane& lane = schedules_[rank].lanes[i];
          while (step < lane.steps.size() && take(static_cast<int>(rank), lane, lane.steps[step], path)) {
            ++step;
            moved = true;
          }
        }
      }
    }
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
      for (std::size_t i = 0; i < lanes[rank].size(); ++i) {
        EXPECT_EQ(lanes[rank][i].first, schedules_[rank].lanes[i].steps.size()) << "a lane waits for ever";
      }
    }
    return longest_;
  }

 private:
  using Stream = std::tuple<int, int, int, std::uint32_t>;  // from, to, phase, chunk

  double cost(const CriticalPath& path) const { return path.wire_hops * costs_.wire + path.local_hops * costs_.local; }
  CriticalPath longer(const CriticalPath& a, const CriticalPath& b) const { return cost(a) < cost(b) ? b : a; }

  bool take(int rank, const Lane& lane, const Step& step, CriticalPath& path) {
    for (const int peer : step.peers) {
      if (receives(step.kind)) {
        const auto sent = sent_.find({peer, rank, step.phase, lane.chunk});
        if (sent == sent_.end()) return false;
        path = longer(path, sent->second);
      } else if (sends(step.kind)) {
        CriticalPath arrival = path;
        const bool local = hosts_[static_cast<std::size_t>(rank)] == hosts_[static_cast<std::size_t>(peer)];
        ++(local ? arrival.local_hops : arrival.wire_hops);
        sent_[{rank, peer, step.phase, lane.chunk}] = arrival;
        longest_ = longer(longest_, arrival);
      }
    }
    return true;
  }

  std::vector<RankSchedule> schedules_;
  const std::vector<int>& hosts_;
  const HopCosts costs_;
  std::map<Stream, CriticalPath> sent_;
  CriticalPath longest_;
};

std::vector<std::vector<int>> layouts(int world) {
  std::vector<std::vector<int>> all(6);
  for (int rank = 0; rank < world; ++rank) {
    all[0].push_back(rank);                 // each alone
    all[1].push_back(0);                    // all together
    all[2].push_back(rank / 3);             // three on each
    all[3].push_back(rank % 2);             // interleaved
    all[4].push_back(rank == 0 ? 0 : 1);    // one on the first, all others on the second
    all[5].push_back(rank < 2 ? rank : 2);  // two alone, all others together
  }
  return all;
}

TEST(CriticalPath, by_formula_is_the_longest_through_the_plan) {
  const HopCosts costs{.wire = 5, .local = 1};
  for (const Collective collective : kEveryCollective) {
    if (collective == Collective::barrier) continue;  // moves no elements
    for (const Algorithm algorithm : algorithms_of(collective)) {
      for (const int world : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17}) {
        for (const auto& hosts : layouts(world)) {
          for (int root = 0; root < (is_rooted(collective) ? world : 1); ++root) {
            const Request request{.collective = collective,
                                  .algorithm = algorithm,
                                  .world = world,
                                  .root = root,
                                  .count = 64 * 400,
                                  .slice_elements = 1 << 20,
                                  .hosts = hosts};
            const CriticalPath expected = Walk(request, hosts, costs).longest();
            const CriticalPath path = critical_path(request, Hosts(hosts, world), costs);
            ASSERT_EQ(std::pair(path.wire_hops, path.local_hops), std::pair(expected.wire_hops, expected.local_hops))
                << fmt::format("{} {} world {} root {} hosts [{}]", to_string(collective), to_string(algorithm), world,
                               root, fmt::join(hosts, " "));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace qccl::plan
