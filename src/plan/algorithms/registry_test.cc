#include "plan/algorithms/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <set>
#include <tuple>

namespace qccl::plan {
namespace {

TEST(Registry, has_every_algorithm_that_users_can_request_once_with_a_name_of_its_own) {
  std::set<Algorithm> listed;
  std::set<std::string_view> names;
  for (const AlgorithmEntry* entry : algorithm_list()) {
    EXPECT_TRUE(listed.insert(entry->algorithm).second) << to_string(entry->algorithm) << " twice";
    EXPECT_EQ(&entry_of(entry->algorithm), entry);
    EXPECT_NE(to_string(entry->algorithm), "unknown");
    EXPECT_TRUE(names.insert(to_string(entry->algorithm)).second) << to_string(entry->algorithm);
  }
  const std::vector<Algorithm> every = every_algorithm();
  EXPECT_EQ(listed, std::set<Algorithm>(every.begin(), every.end()));
}

// The numbers are those that ranks of other releases send.
TEST(Registry, names_are_those_of_the_enumerators) {
  const std::pair<Algorithm, std::string_view> known[] = {
      {Algorithm::automatic, "auto"},
      {Algorithm::one_shot, "one_shot"},
      {Algorithm::sra, "sra"},
      {Algorithm::ring, "ring"},
      {Algorithm::tree, "tree"},
      {Algorithm::binomial, "binomial"},
      {Algorithm::pairwise, "pairwise"},
      {Algorithm::hierarchical, "hierarchical"},
      {Algorithm::recursive_doubling, "recursive_doubling"},
  };
  for (std::size_t number = 0; number < std::size(known); ++number) {
    const auto& [algorithm, name] = known[number];
    EXPECT_EQ(static_cast<std::size_t>(algorithm), number);
    EXPECT_EQ(to_string(algorithm), name);
    EXPECT_EQ(algorithm_named(name), algorithm);
  }
  EXPECT_FALSE(algorithm_named("rings").has_value());
  EXPECT_FALSE(algorithm_named("unknown").has_value());
  EXPECT_EQ(to_string(Algorithm{63}), "unknown");
}

TEST(Registry, every_collective_has_an_algorithm_that_needs_no_request) {
  for (const Collective collective : kEveryCollective) {
    const CollectiveBuilder& first = *builder_of(collective, algorithms_of(collective).front());
    EXPECT_FALSE(first.only_on_request) << to_string(collective);
  }
}

TEST(Registry, one_shot_has_every_collective) {
  for (const Collective collective : kEveryCollective) {
    EXPECT_TRUE(has_algorithm(collective, Algorithm::one_shot)) << to_string(collective);
    for (const Algorithm algorithm : algorithms_of(collective)) {
      EXPECT_TRUE(has_algorithm(collective, built_for(algorithm, /*compressed=*/true))) << to_string(algorithm);
    }
  }
  EXPECT_EQ(algorithms_of(Collective::barrier).size(), 1u);
}

TEST(Registry, the_order_of_sums_is_that_of_the_collective) {
  EXPECT_TRUE(adds_in_rank_order(Collective::all_reduce, Algorithm::pairwise));
  EXPECT_FALSE(adds_in_rank_order(Collective::all_to_all, Algorithm::pairwise));
  EXPECT_FALSE(adds_in_rank_order(Collective::gather, Algorithm::sra));
}

TEST(Registry, an_automatic_algorithm_stays_automatic) {
  EXPECT_EQ(built_for(Algorithm::automatic, true), Algorithm::automatic);
  EXPECT_EQ(built_for(Algorithm::recursive_doubling, false), Algorithm::recursive_doubling);
  EXPECT_EQ(built_for(Algorithm::recursive_doubling, true), Algorithm::one_shot);
}

// ---- critical paths: by formula as through the plan itself

// Runs all lanes' steps of one slice; each moment records the longest path that led to it. A lane that is after another
// begins at the end of that one's.
class Walk {
 public:
  explicit Walk(const PathFinder& paths) : paths_(paths) {
    for (int rank = 0; rank < paths.request.world; ++rank) schedules_.push_back(schedule_of(paths.request, rank));
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
          if (step == 0 && lane.after >= 0) {
            const auto leader = static_cast<std::size_t>(lane.after);
            if (lanes[rank][leader].first < schedules_[rank].lanes[leader].steps.size()) continue;
            path = lanes[rank][leader].second;
          }
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

  bool take(int rank, const Lane& lane, const Step& step, CriticalPath& path) {
    for (const int peer : step.peers) {
      if (receives(step.kind)) {
        const auto sent = sent_.find({peer, rank, step.phase, lane.chunk});
        if (sent == sent_.end()) return false;
        path = paths_.longer(path, sent->second);
      } else if (sends(step.kind)) {
        const CriticalPath arrival = path + paths_.hop(rank, peer);
        sent_[{rank, peer, step.phase, lane.chunk}] = arrival;
        longest_ = paths_.longer(longest_, arrival);
      }
    }
    return true;
  }

  std::vector<RankSchedule> schedules_;
  const PathFinder& paths_;
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
  const HopCosts costs{.wire = 5, .local = 1, .near = 0};
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
            const Places places(hosts, world);
            const CriticalPath expected = Walk({request, places, costs}).longest();
            ASSERT_EQ(critical_path(request, places, costs), expected)
                << fmt::format("{} {} world {} root {} hosts [{}]", to_string(collective), to_string(algorithm), world,
                               root, fmt::join(hosts, " "));
          }
        }
      }
    }
  }
}

// Two sites: hosts with two ranks each in blocks, single ranks, interleaved.
std::vector<Layout> layouts_with_sites(int world) {
  std::vector<Layout> all(3);
  for (int rank = 0; rank < world; ++rank) {
    all[0].hosts.push_back(rank / 2);
    all[0].sites.push_back(2 * (rank / 2) >= world / 2 ? 1 : 0);
    all[1].hosts.push_back(rank);
    all[1].sites.push_back(rank < 3 ? 0 : 1);
    all[2].hosts.push_back(rank % 4);
    all[2].sites.push_back(rank % 2);
  }
  return all;
}

// Over hosts, a hierarchical plan's longest path to and from a root depends on which hosts share its site: the formula
// may have too many hops.
TEST(CriticalPath, by_formula_counts_hops_inside_sites) {
  const HopCosts costs{.wire = 100, .local = 1, .near = 10};
  for (const Collective collective : kEveryCollective) {
    if (collective == Collective::barrier) continue;  // moves no elements
    for (const Algorithm algorithm : algorithms_of(collective)) {
      for (const int world : {4, 7, 8, 12}) {
        for (const Layout& layout : layouts_with_sites(world)) {
          for (const bool by_sites : {true, false}) {
            const Request request{.collective = collective,
                                  .algorithm = algorithm,
                                  .world = world,
                                  .root = !is_rooted(collective) ? 0
                                          : by_sites             ? world / 2
                                                                 : world - 1,
                                  .count = 64 * 400,
                                  .slice_elements = 1 << 20,
                                  .hosts = by_sites ? layout.sites : layout.hosts};
            const Places places(layout, world);
            const PathFinder paths{request, places, costs};
            const CriticalPath expected = Walk(paths).longest();
            const CriticalPath path = critical_path(request, places, costs);
            const std::string call =
                fmt::format("{} {} world {} hosts [{}] sites [{}] by {}", to_string(collective), to_string(algorithm),
                            world, fmt::join(layout.hosts, " "), fmt::join(layout.sites, " "), by_sites);
            if (algorithm == Algorithm::hierarchical && is_rooted(collective)) {
              EXPECT_GE(paths.cost(path), paths.cost(expected)) << call;
            } else {
              EXPECT_EQ(path, expected) << call;
            }
          }
        }
      }
    }
  }
}

// ---- recursive doubling

Request doubling(int world) {
  return {.algorithm = Algorithm::recursive_doubling, .world = world, .count = 1, .slice_elements = 64};
}

// The peers to which the rank sends its partial sums, in order.
std::vector<int> swap_peers(int world, int rank) {
  std::vector<int> peers;
  const RankSchedule schedule = schedule_of(doubling(world), rank);
  for (const Step& step : schedule.lanes.at(0).steps) {
    if (step.kind == StepKind::send_sum) peers.push_back(step.peers.at(0));
  }
  return peers;
}

TEST(RecursiveDoubling, power_of_two_of_ranks_swap_in_pairs_at_doubling_distances) {
  for (int world = 2; world <= 33; ++world) {
    std::vector<int> swapping;  // in rank order
    for (int rank = 0; rank < world; ++rank) {
      if (!swap_peers(world, rank).empty()) swapping.push_back(rank);
    }
    ASSERT_EQ(swapping.size(), std::bit_floor(static_cast<unsigned>(world)));
    for (std::size_t own = 0; own < swapping.size(); ++own) {
      const std::vector<int> peers = swap_peers(world, swapping[own]);
      ASSERT_EQ(std::size_t{1} << peers.size(), swapping.size()) << swapping[own] << " of " << world;
      for (std::size_t swap = 0; swap < peers.size(); ++swap) {
        EXPECT_EQ(peers[swap], swapping[own ^ std::size_t{1} << swap]) << swapping[own] << " of " << world;
      }
    }
  }
}

TEST(Pairwise, sums_leave_slice_by_slice_in_turns_and_results_for_all_at_once) {
  const Request request{.collective = Collective::all_reduce,
                        .algorithm = Algorithm::pairwise,
                        .world = 4,
                        .count = 400,
                        .slice_elements = 10};
  const RankSchedule schedule = schedule_of(request, 2);
  std::vector<int> turns;  // of the peers to send inputs to
  for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
    const Lane& lane = schedule.lanes[i];
    const bool is_first = turns.empty();
    const bool gives_input = lane.steps[0].kind == StepKind::send_input;
    if (gives_input) turns.push_back(lane.steps[0].peers.at(0));
    EXPECT_EQ(lane.after, gives_input && !is_first ? static_cast<int>(i) - 1 : -1);
    EXPECT_EQ(lane.slice_by_slice, lane.after >= 0);
    if (lane.steps.back().kind == StepKind::send_result) EXPECT_EQ(lane.steps.back().peers, (std::vector{3, 0, 1}));
  }
  EXPECT_EQ(turns, (std::vector{3, 0, 1}));
}

TEST(RecursiveDoubling, ranks_send_once_per_swap_and_partners_exchange_input_and_result) {
  const std::pair<int, std::size_t> cases[] = {{1, 0},      {2, 2}, {3, 2 + 2}, {4, 4 * 2}, {6, 4 * 2 + 2 * 2},
                                               {16, 16 * 4}};
  for (const auto& [world, expected] : cases) {
    std::size_t messages = 0;
    for (int rank = 0; rank < world; ++rank) {
      const RankSchedule schedule = schedule_of(doubling(world), rank);
      for (const Step& step : schedule.lanes.at(0).steps) messages += sends(step.kind) ? step.peers.size() : 0;
    }
    EXPECT_EQ(messages, expected) << world;
  }
}

TEST(RecursiveDoubling, compressed_builds_one_shot) {
  Request request = doubling(4);
  request.compressed = true;
  const std::string doubled = to_string(schedule_of(request, 1));
  request.algorithm = Algorithm::one_shot;
  EXPECT_EQ(doubled, to_string(schedule_of(request, 1)));
}

}  // namespace
}  // namespace qccl::plan
