#include "plan/check/checker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

std::vector<RankSchedule> schedules_of(const Requests& requests) {
  std::vector<RankSchedule> schedules;
  for (const Request& request : requests) schedules.push_back(schedule_of(request, static_cast<int>(schedules.size())));
  return schedules;
}

Requests same(const Request& request) { return Requests(static_cast<std::size_t>(request.world), request); }
std::vector<RankSchedule> schedules_of(const Request& request) { return schedules_of(same(request)); }

Request request_of(Collective collective, Algorithm algorithm, int world, std::uint64_t count) {
  return {.collective = collective, .algorithm = algorithm, .world = world, .count = count, .slice_elements = 64};
}

// Why a plan is refused; "" if it is accepted.
std::string complaint(const Request& request, const std::vector<RankSchedule>& schedules) {
  const Status status = check(request, schedules);
  return status.ok() ? "" : status.error().message;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Status accept(const Requests& requests) {
  Status status = check(requests, schedules_of(requests));
  EXPECT_TRUE(status.ok()) << describe(requests[0]) << ": " << status.error().message;
  return status;
}

TEST(Checker, accepts_every_plan_for_worlds_1_to_33_with_even_and_ragged_counts) {
  for (const Collective collective : kEveryCollective) {
    for (const Algorithm algorithm : algorithms_of(collective)) {
      ASSERT_TRUE(for_each_request(collective, algorithm, kMaxCheckedWorld, accept).ok());
    }
  }
}

// With one slot a stream, plans that wait for each other in a circle get stuck only from the second slice on.
TEST(Checker, sees_nine_slices_of_every_chunk_in_worlds_2_to_6) {
  for (const Collective collective : kEveryCollective) {
    if (collective == Collective::barrier) continue;
    for (const Algorithm algorithm : algorithms_of(collective)) {
      std::map<int, std::uint64_t> slices;
      const auto count_slices = [&](const Requests& requests) -> Status {
        const Request& request = requests[0];
        std::uint64_t least = UINT64_MAX;
        for (const Range& chunk : chunks(request)) {
          least = std::min(least, (chunk.count + request.slice_elements - 1) / request.slice_elements);
        }
        slices[request.world] = std::max(slices[request.world], least);
        return {};
      };
      ASSERT_TRUE(for_each_request(collective, algorithm, 6, count_slices).ok());
      for (int world = 2; world <= 6; ++world) {
        EXPECT_GE(slices[world], 9U) << to_string(collective) << " " << to_string(algorithm) << ", world " << world;
      }
    }
  }
}

TEST(Checker, accepts_every_root_of_every_rooted_plan) {
  for (const Collective collective :
       {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter}) {
    for (const Algorithm algorithm : algorithms_of(collective)) {
      for (int world = 1; world <= 17; ++world) {
        Request request = request_of(collective, algorithm, world, 300);
        for (request.root = 0; request.root < world; ++request.root) {
          ASSERT_TRUE(accept(same(request)).ok());
        }
      }
    }
  }
}

TEST(Checker, accepts_hierarchies_of_unequal_and_interleaved_hosts) {
  const std::vector<std::vector<int>> layouts = {
      {0, 0, 0, 1}, {0, 1, 1, 1, 1, 2, 2}, {0, 1, 0, 1, 0, 1}, {5, 5, 5, 5, 5, 5}, {2, 1, 0}, {0, 0, 1, 1, 2, 2, 3, 3}};
  for (const Collective collective : kEveryCollective) {
    if (!has_algorithm(collective, Algorithm::hierarchical)) continue;
    for (const auto& layout : layouts) {
      const int world = static_cast<int>(layout.size());
      for (const std::uint64_t count : {1, 100, 5000}) {
        for (const bool compressed : {false, true}) {
          Request request = request_of(collective, Algorithm::hierarchical, world, count);
          request.hosts = layout;
          request.compressed = compressed;
          for (request.root = 0; request.root < (is_rooted(collective) ? world : 1); ++request.root) {
            ASSERT_TRUE(accept(same(request)).ok());
          }
        }
      }
    }
  }
}

// The most elements that leave or enter one host in the call.
std::uint64_t busiest_host_elements(const Request& request) {
  std::map<std::pair<int, bool>, std::uint64_t> moved;  // by host, out and in
  for (int rank = 0; rank < request.world; ++rank) {
    const int host = request.hosts[static_cast<std::size_t>(rank)];
    for (const Lane& lane : schedule_of(request, rank).lanes) {
      for (const Step& step : lane.steps) {
        for (const int peer : step.peers) {
          const bool crosses = request.hosts[static_cast<std::size_t>(peer)] != host;
          if (crosses) moved[{host, receives(step.kind)}] += lane.count;
        }
      }
    }
  }
  return std::ranges::max(moved | std::views::values);
}

// An all_reduce moves each element there and back. A reduce over more than two hosts does the same: to the rank that
// adds it up, then to the root.
TEST(Hierarchies, move_each_element_between_two_hosts_once) {
  constexpr std::uint64_t kWhole = 24 * 64 * 64;  // divides evenly among all owners
  for (const int hosts : {2, 3, 4}) {
    for (const int each : {1, 2, 4}) {
      const int world = hosts * each;
      const std::uint64_t part = kWhole / static_cast<std::uint64_t>(hosts);
      const std::pair<Collective, std::uint64_t> least[] = {
          {Collective::all_reduce, 2 * (kWhole - part)},
          {Collective::reduce, hosts == 2 ? kWhole : 2 * (kWhole - part)},
          {Collective::broadcast, kWhole},
          {Collective::all_gather, kWhole - part},
          {Collective::reduce_scatter, kWhole - part}};
      for (const auto& [collective, elements] : least) {
        const auto count = has_pieces(collective) ? kWhole / static_cast<std::uint64_t>(world) : kWhole;
        Request request = request_of(collective, Algorithm::hierarchical, world, count);
        for (int rank = 0; rank < world; ++rank) request.hosts.push_back(rank / each);
        request.root = world - 1;
        EXPECT_EQ(busiest_host_elements(request), elements)
            << to_string(collective) << " on " << hosts << " hosts of " << each;
      }
    }
  }
}

// ---- mistakes in every algorithm's plans

std::vector<Request> every_plan() {
  std::vector<Request> all;
  for (const Collective collective : kEveryCollective) {
    if (collective == Collective::barrier) continue;
    for (const Algorithm algorithm : algorithms_of(collective)) {
      all.push_back(request_of(collective, algorithm, 5, 1000));
      all.back().root = 2;
      all.back().hosts = {0, 0, 1, 1, 1};
    }
  }
  return all;
}

// Applies `change` to each lane of each rank of each plan in turn, and expects each plan that it changes to be refused.
template <class Change>
void expect_refused(const Change& change) {
  for (const Request& request : every_plan()) {
    int planted = 0;
    const auto right = schedules_of(request);
    for (std::size_t rank = 0; rank < right.size(); ++rank) {
      for (std::size_t lane = 0; lane < right[rank].lanes.size(); ++lane) {
        auto schedules = right;
        if (!change(schedules[rank], lane)) continue;
        ++planted;
        EXPECT_NE(complaint(request, schedules), "") << describe(request) << ": rank " << rank << ", lane " << lane;
      }
    }
    EXPECT_GT(planted, 0) << describe(request);
  }
}

// A compressed all_gather that sends its piece by a lane for each peer, in turn, and keeps the decoded piece after the
// first of them or after all.
std::vector<RankSchedule> gather_in_turns(const Request& request, bool keeps_after_all) {
  std::vector<RankSchedule> schedules(static_cast<std::size_t>(request.world));
  for (int rank = 0; rank < request.world; ++rank) {
    Builder b(request, rank);
    const int first = b.last_lane() + 1;
    for (const int peer : b.others()) b.add_scratch(rank, 0, {{StepKind::send_input, 0, {peer}}});
    b.order_by_slice(first);
    const int last = b.last_lane();
    b.add(rank, 0, b.begin_of(rank), {{StepKind::local_copy, 0, {}, true}});
    for (const int peer : b.others()) b.add(peer, 0, b.begin_of(peer), {{StepKind::recv_copy, 0, {peer}}});
    RankSchedule& schedule = schedules[static_cast<std::size_t>(rank)] = b.take();
    Lane& keep = schedule.lanes[static_cast<std::size_t>(last + 1)];
    keep.after = keeps_after_all ? last : first;
    keep.slice_by_slice = true;
  }
  return schedules;
}

TEST(Checker, finds_a_write_that_comes_too_early_only_where_later_lanes_have_their_turn_first) {
  Request request = request_of(Collective::all_gather, Algorithm::one_shot, 4, 1000);
  request.compressed = true;
  EXPECT_EQ(complaint(request, gather_in_turns(request, true)), "");
  EXPECT_TRUE(contains(complaint(request, gather_in_turns(request, false)), "its result has overwritten"));
}

TEST(Checker, finds_every_send_left_out_and_every_receive_left_out) {
  expect_refused([](RankSchedule& schedule, std::size_t lane) {
    schedule.lanes.erase(schedule.lanes.begin() + static_cast<std::ptrdiff_t>(lane));
    for (Lane& later : schedule.lanes) later.after = -1;
    return true;
  });
}

bool has_any(const Lane& lane, std::initializer_list<StepKind> kinds) {
  return std::ranges::any_of(lane.steps, [&](const Step& step) { return std::ranges::count(kinds, step.kind) > 0; });
}

TEST(Checker, finds_every_piece_at_the_wrong_place) {
  expect_refused([](RankSchedule& schedule, std::size_t lane) {
    Lane& read = schedule.lanes[lane];
    read.input_begin += 64;
    return has_any(read, {StepKind::send_input, StepKind::local_reduce, StepKind::local_copy});
  });
  expect_refused([](RankSchedule& schedule, std::size_t lane) {
    Lane& written = schedule.lanes[lane];
    written.output_begin += 64;
    return !written.scratch && has_any(written, {StepKind::finish, StepKind::recv_copy, StepKind::local_copy});
  });
}

TEST(Checker, finds_an_owner_that_keeps_its_unencoded_piece) {
  Request request = request_of(Collective::all_gather, Algorithm::ring, 3, 100);
  request.compressed = true;
  auto schedules = schedules_of(request);
  for (Step& step : schedules[1].lanes[0].steps) step.quantized = false;
  EXPECT_TRUE(contains(complaint(request, schedules), "disagree"));
}

TEST(Checker, finds_a_slice_encoded_twice) {
  Request request = request_of(Collective::all_reduce, Algorithm::ring, 3, 64);
  request.compressed = true;
  auto schedules = schedules_of(request);
  for (RankSchedule& schedule : schedules) {
    for (Lane& lane : schedule.lanes) {  // encode again what should be forwarded unchanged
      for (Step& step : lane.steps) step.kind = step.kind == StepKind::forward ? StepKind::send_result : step.kind;
    }
  }
  EXPECT_NE(complaint(request, schedules), "");
}

// The owner of a chunk encodes the sum for one peer and, as the result, for the others: with error feedback its error
// would count twice.
TEST(Checker, finds_a_sum_encoded_for_each_peer_anew) {
  Request request = request_of(Collective::all_reduce, Algorithm::sra, 3, 192);
  request.compressed = true;
  auto schedules = schedules_of(request);
  int changed = 0;
  for (RankSchedule& schedule : schedules) {
    for (Lane& lane : schedule.lanes) {
      Step& last = lane.steps.back();
      if (last.kind != StepKind::send_result) continue;
      Step anew = last;
      anew.kind = StepKind::send_sum;
      anew.peers = {last.peers.back()};
      last.peers.pop_back();
      lane.steps.push_back(anew);
      ++changed;
    }
  }
  EXPECT_EQ(changed, 3);
  EXPECT_TRUE(contains(complaint(request, schedules), "encodes a slice twice"));
}

TEST(Checker, names_the_lane_that_waits_for_ever) {
  const Request request = request_of(Collective::reduce_scatter, Algorithm::one_shot, 2, 64);
  auto schedules = schedules_of(request);
  for (RankSchedule& schedule : schedules) {
    std::swap(schedule.lanes[0], schedule.lanes[1]);  // sums before they send
    schedule.lanes[1].after = 0;
  }
  EXPECT_EQ(complaint(request, schedules), "deadlock: rank 0 waits in lane 0, chunk 0, slice 0, step 1 (recv_reduce)");
}

// An owner adds slice 0 of all ranks before slice 1 of any.
TEST(Checker, finds_a_deadlock_of_whole_lanes_where_there_is_none_slice_by_slice) {
  const Request request = request_of(Collective::reduce_scatter, algorithm_named("exchange").value(), 3, 9 * 64);
  auto schedules = schedules_of(request);
  EXPECT_EQ(complaint(request, schedules), "");
  for (RankSchedule& schedule : schedules) {
    for (Lane& lane : schedule.lanes) lane.slice_by_slice = false;
  }
  EXPECT_TRUE(contains(complaint(request, schedules), "deadlock: rank 0 waits in lane"));
}

// All ranks send slice by slice after what they receive, which nobody has sent.
TEST(Checker, finds_a_deadlock_of_lanes_slice_by_slice) {
  const Request request = request_of(Collective::reduce_scatter, Algorithm::one_shot, 2, 64);
  auto schedules = schedules_of(request);
  for (RankSchedule& schedule : schedules) {
    std::swap(schedule.lanes[0], schedule.lanes[1]);
    schedule.lanes[1].after = 0;
    schedule.lanes[1].slice_by_slice = true;
  }
  EXPECT_TRUE(contains(complaint(request, schedules), "deadlock"));
}

TEST(Checker, refuses_an_order_that_no_schedule_can_have) {
  const Request request = request_of(Collective::reduce_scatter, Algorithm::one_shot, 2, 64);
  for (const int after : {1, 7, -2}) {
    auto schedules = schedules_of(request);
    schedules[1].lanes[1].after = after;
    EXPECT_EQ(complaint(request, schedules),
              "rank 1, lane 1: is after lane " + std::to_string(after) + ", which is no earlier one");
  }
  auto schedules = schedules_of(request);
  schedules[1].lanes[0].slice_by_slice = true;
  EXPECT_EQ(complaint(request, schedules), "rank 1, lane 0: goes slice by slice after no lane");
}

// Plants the mistake in each suitable place of each plan. The checker must refuse them all, and the first of each plan
// with these words. Returns the number of plans with suitable places.
int expect_named(Mistake mistake, const std::string& words) {
  int planted = 0;
  for (const Request& request : every_plan()) {
    for (int index = 0;; ++index) {
      std::vector<RankSchedule> schedules = schedules_of(request);
      if (!plant(mistake, request, schedules, index)) break;
      planted += index == 0;
      const std::string text = complaint(request, schedules);
      EXPECT_TRUE(index == 0 ? contains(text, words) : text != "")
          << to_string(mistake) << " " << index << " in " << describe(request) << ": " << text;
    }
  }
  return planted;
}

// The plans of reductions, or those of them that add in rank order.
int reductions(bool only_in_rank_order = false) {
  int count = 0;
  for (const AlgorithmEntry* entry : algorithm_list()) {
    for (const CollectiveBuilder& each : entry->collectives) {
      count += is_reduction(each.collective) && (each.adds_in_rank_order || !only_in_rank_order);
    }
  }
  return count;
}

TEST(Mistakes, are_named) {
  EXPECT_EQ(expect_named(Mistake::missing_contribution, "lacks the contribution of rank"), reductions());
  EXPECT_EQ(expect_named(Mistake::double_contribution, "2 times"), reductions());
  EXPECT_EQ(expect_named(Mistake::different_order, "not in rank order"), reductions(true));
  EXPECT_GT(expect_named(Mistake::unreceived_send, "which nobody receives"), 10);
  EXPECT_GT(expect_named(Mistake::overwritten_input, "reads input that its result has overwritten"), 0);
  EXPECT_GT(expect_named(Mistake::crossed_waits, "deadlock"), 2);
}

TEST(Mistakes, order_of_one_rank_alone_is_a_disagreement_between_ranks) {
  Request request = request_of(Collective::all_reduce, Algorithm::one_shot, 5, 1000);
  std::vector<RankSchedule> schedules = schedules_of(request);
  ASSERT_TRUE(plant(Mistake::different_order, request, schedules));
  request.algorithm = Algorithm::tree;  // promises no particular order, but the same on all ranks
  EXPECT_TRUE(contains(complaint(request, schedules), "disagree"));
}

TEST(Mistakes, crossed_waits_make_each_lane_wait_for_the_one_before_it) {
  const Request request = request_of(Collective::all_reduce, Algorithm::sra, 3, 192);
  std::vector<RankSchedule> schedules = schedules_of(request);
  ASSERT_TRUE(plant(Mistake::crossed_waits, request, schedules));
  for (const RankSchedule& schedule : schedules) {
    for (int lane = 0; lane < static_cast<int>(schedule.lanes.size()); ++lane) {
      EXPECT_EQ(schedule.lanes[static_cast<std::size_t>(lane)].after, lane - 1);
    }
  }
}

TEST(Coverage, has_every_world_and_ragged_counts_and_stops_at_a_failure) {
  std::vector<int> worlds(kMaxCheckedWorld + 1);
  int ragged = 0;
  const auto count = [&](const Requests& requests) -> Status {
    EXPECT_EQ(requests.size(), static_cast<std::size_t>(requests[0].world));
    ++worlds[requests.size()];
    ragged += !requests[0].counts.empty();
    return {};
  };
  ASSERT_TRUE(for_each_request(Collective::all_to_all, Algorithm::pairwise, kMaxCheckedWorld, count).ok());
  for (int world = 1; world <= kMaxCheckedWorld; ++world) {
    const bool has_long_chunks = world >= 2 && world <= 6;
    EXPECT_EQ(worlds[static_cast<std::size_t>(world)], has_long_chunks ? 16 : 12) << "world " << world;
  }
  EXPECT_EQ(ragged, 2 * (kMaxCheckedWorld + 5));

  int visited = 0;
  const auto fail = [&](const Requests& requests) -> Status {
    if (++visited < 3) return {};
    return Failure(ErrorKind::invalid_argument, describe(requests[0]));
  };
  const Status failed = for_each_request(Collective::all_reduce, Algorithm::ring, 4, fail);
  EXPECT_EQ(visited, 3);
  EXPECT_EQ(failed.error().message, "all_reduce ring, world 1, 7 elements");
}

TEST(Coverage, of_plans_that_use_shares_has_equal_ones_zeros_and_a_single_owner) {
  std::set<std::vector<int>> shares;
  std::set<std::string> names;
  const auto note = [&](const Requests& requests) -> Status {
    if (requests[0].world == 4) shares.insert(requests[0].shares);
    names.insert(describe(requests[0]));
    return {};
  };
  ASSERT_TRUE(for_each_request(Collective::all_reduce, Algorithm::sra, 4, note).ok());
  EXPECT_EQ(shares, (std::set<std::vector<int>>{{}, {37, 74, 0, 148}, {0, 0, 1, 0}}));
  EXPECT_TRUE(names.contains("all_reduce sra, world 4, 4099 elements in shares [37 74 0 148]"));
  shares.clear();
  ASSERT_TRUE(for_each_request(Collective::all_reduce, Algorithm::ring, 4, note).ok());
  EXPECT_EQ(shares.size(), 1u);
}

TEST(Coverage, of_hierarchies_has_hosts_of_three_ranks_a_host_of_one_and_interleaved_hosts) {
  std::set<std::vector<int>> layouts;
  const auto note = [&](const Requests& requests) -> Status {
    if (requests[0].world == 7) layouts.insert(requests[0].hosts);
    return {};
  };
  ASSERT_TRUE(for_each_request(Collective::all_reduce, Algorithm::hierarchical, 7, note).ok());
  const std::set<std::vector<int>> expected = {{0, 0, 0, 1, 1, 1, 2}, {0, 1, 1, 1, 1, 1, 1}, {0, 1, 2, 0, 1, 2, 0}};
  EXPECT_EQ(layouts, expected);
}

}  // namespace
}  // namespace qccl::plan
