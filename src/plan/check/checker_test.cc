#include "plan/check/checker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/check/expectation.h"

namespace qccl::plan {
namespace {

constexpr Collective kCollectives[] = {Collective::all_reduce,     Collective::reduce,    Collective::broadcast,
                                       Collective::reduce_scatter, Collective::gather,    Collective::all_gather,
                                       Collective::scatter,        Collective::all_to_all};

std::vector<RankSchedule> schedules_of(const Request& request) {
  std::vector<RankSchedule> schedules;
  for (int rank = 0; rank < request.world; ++rank) schedules.push_back(schedule_of(request, rank));
  return schedules;
}

Request request_of(Collective collective, Algorithm algorithm, int world, std::uint64_t count) {
  return {.collective = collective, .algorithm = algorithm, .world = world, .count = count, .slice_elements = 64};
}

Request sra(int world, std::uint64_t count) { return request_of(Collective::all_reduce, Algorithm::sra, world, count); }

// Why a plan is refused; "" if it is accepted.
std::string complaint(const Request& request, const std::vector<RankSchedule>& schedules) {
  const Status status = check(request, schedules);
  return status.ok() ? "" : status.error().message;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void expect_right(const std::vector<Request>& requests) {
  const Request& first = requests[0];
  const Status status = check(requests);
  ASSERT_TRUE(status.ok()) << to_string(first.collective) << " " << to_string(first.algorithm) << " world "
                           << first.world << " root " << first.root << " count " << first.count
                           << (first.compressed ? " compressed: " : ": ") << status.error().message;
}

TEST(Checker, accepts_every_plan_for_worlds_1_to_33_and_ragged_counts) {
  int checked = 0;
  for (const Collective collective : kCollectives) {
    for (const Algorithm algorithm : algorithms_of(collective)) {
      for (int world = 1; world <= 33; ++world) {
        for (const std::uint64_t count : {0, 1, 7, 1023, 4099}) {
          for (const bool compressed : {false, true}) {
            Request request = request_of(collective, algorithm, world, count);
            request.root = static_cast<int>(count) % world;
            request.bucket_size = compressed ? 100 : 1;
            request.slice_elements = 1600;
            request.compressed = compressed;
            for (int rank = 0; rank < world; ++rank) request.hosts.push_back(rank / 3);
            ASSERT_NO_FATAL_FAILURE(expect_right(std::vector<Request>(static_cast<std::size_t>(world), request)));
            ++checked;
          }
        }
      }
    }
  }
  EXPECT_GT(checked, 6000);
}

TEST(Checker, accepts_every_root_of_every_rooted_plan) {
  for (const Collective collective :
       {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter}) {
    for (const Algorithm algorithm : algorithms_of(collective)) {
      for (int world = 1; world <= 17; ++world) {
        Request request = request_of(collective, algorithm, world, 300);
        for (request.root = 0; request.root < world; ++request.root) {
          ASSERT_NO_FATAL_FAILURE(expect_right(std::vector<Request>(static_cast<std::size_t>(world), request)));
        }
      }
    }
  }
}

// Piece lengths that include zeros, with ranks that have no elements at all.
std::uint64_t ragged(int i, int j = 0) {
  return (i + 2 * j) % 3 == 0 ? 0 : static_cast<std::uint64_t>(37 * i + 11 * j);
}

TEST(Checker, accepts_every_plan_with_counts_of_each_rank) {
  for (const Collective collective :
       {Collective::all_gather, Collective::reduce_scatter, Collective::gather, Collective::scatter}) {
    for (const Algorithm algorithm : algorithms_of(collective)) {
      for (int world = 1; world <= 33; ++world) {
        Request request = request_of(collective, algorithm, world, 0);
        request.root = world / 2;
        for (int rank = 0; rank < world; ++rank) request.counts.push_back(ragged(rank));
        ASSERT_NO_FATAL_FAILURE(expect_right(std::vector<Request>(static_cast<std::size_t>(world), request)));
      }
    }
  }
}

TEST(Checker, accepts_all_to_all_with_counts_of_each_pair) {
  for (const Algorithm algorithm : algorithms_of(Collective::all_to_all)) {
    for (int world = 1; world <= 33; ++world) {
      std::vector<Request> requests;
      for (int rank = 0; rank < world; ++rank) {
        requests.push_back(request_of(Collective::all_to_all, algorithm, world, 0));
        for (int peer = 0; peer < world; ++peer) requests.back().counts.push_back(ragged(rank, peer));
        for (int peer = 0; peer < world; ++peer) requests.back().counts.push_back(ragged(peer, rank));
      }
      ASSERT_NO_FATAL_FAILURE(expect_right(requests));
    }
  }
}

TEST(Checker, accepts_hierarchies_of_unequal_and_interleaved_hosts) {
  const std::vector<std::vector<int>> layouts = {
      {0, 0, 0, 1}, {0, 1, 1, 1, 1, 2, 2}, {0, 1, 0, 1, 0, 1}, {5, 5, 5, 5, 5, 5}, {2, 1, 0}, {0, 0, 1, 1, 2, 2, 3, 3}};
  for (const Collective collective : kCollectives) {
    const auto all = algorithms_of(collective);
    if (std::find(all.begin(), all.end(), Algorithm::hierarchical) == all.end()) continue;
    for (const auto& layout : layouts) {
      const int world = static_cast<int>(layout.size());
      for (const std::uint64_t count : {1, 100, 5000}) {
        for (const bool compressed : {false, true}) {
          Request request = request_of(collective, Algorithm::hierarchical, world, count);
          request.hosts = layout;
          request.compressed = compressed;
          for (request.root = 0; request.root < (is_rooted(collective) ? world : 1); ++request.root) {
            ASSERT_NO_FATAL_FAILURE(expect_right(std::vector<Request>(layout.size(), request)));
          }
        }
      }
    }
  }
}

// The most elements that leave or enter one host in the call.
std::uint64_t busiest_host_elements(const Request& request) {
  std::map<int, std::uint64_t> out;
  std::map<int, std::uint64_t> in;
  for (int rank = 0; rank < request.world; ++rank) {
    const int host = request.hosts[static_cast<std::size_t>(rank)];
    for (const Lane& lane : schedule_of(request, rank).lanes) {
      for (const Step& step : lane.steps) {
        const bool receives = step.kind == StepKind::recv_copy || step.kind == StepKind::recv_reduce;
        for (const int peer : step.peers) {
          if (request.hosts[static_cast<std::size_t>(peer)] != host) (receives ? in : out)[host] += lane.count;
        }
      }
    }
  }
  std::uint64_t most = 0;
  for (const auto& [host, elements] : out) most = std::max(most, elements);
  for (const auto& [host, elements] : in) most = std::max(most, elements);
  return most;
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
        const bool has_pieces = collective == Collective::all_gather || collective == Collective::reduce_scatter;
        const auto count = has_pieces ? kWhole / static_cast<std::uint64_t>(world) : kWhole;
        Request request = request_of(collective, Algorithm::hierarchical, world, count);
        for (int rank = 0; rank < world; ++rank) request.hosts.push_back(rank / each);
        request.root = world - 1;
        EXPECT_EQ(busiest_host_elements(request), elements)
            << to_string(collective) << " on " << hosts << " hosts of " << each;
      }
    }
  }
}

// ---- planted mistakes; the checker must find them in every algorithm's plans

struct Planted {
  Collective collective;
  Algorithm algorithm;
  std::string name() const { return fmt::format("{}_{}", to_string(collective), to_string(algorithm)); }
};

class CheckerOf : public ::testing::TestWithParam<Planted> {
 protected:
  Request request() const {
    Request request = request_of(GetParam().collective, GetParam().algorithm, 5, 1000);
    request.root = 2;
    request.hosts = {0, 0, 1, 1, 1};
    return request;
  }
  // Applies `change` to each lane of each rank in turn, and expects each plan that it changes to be refused.
  template <class Change>
  int expect_refused(const Change& change) const {
    int planted = 0;
    const auto right = schedules_of(request());
    for (std::size_t rank = 0; rank < right.size(); ++rank) {
      for (std::size_t lane = 0; lane < right[rank].lanes.size(); ++lane) {
        auto schedules = right;
        if (!change(schedules[rank], lane)) continue;
        ++planted;
        EXPECT_NE(complaint(request(), schedules), "")
            << GetParam().name() << ": rank " << rank << ", lane " << lane << "\n"
            << to_string(schedules[rank]);
      }
    }
    return planted;
  }
};

bool is_addition(const Step& step) { return step.kind == StepKind::local_reduce || step.kind == StepKind::recv_reduce; }

TEST_P(CheckerOf, finds_every_contribution_left_out) {
  const int planted = expect_refused([](RankSchedule& schedule, std::size_t lane) {
    auto& steps = schedule.lanes[lane].steps;
    const auto local =
        std::find_if(steps.begin(), steps.end(), [](const Step& step) { return step.kind == StepKind::local_reduce; });
    if (local == steps.end()) return false;
    steps.erase(local);
    return true;
  });
  EXPECT_EQ(planted > 0, is_reduction(GetParam().collective));
}

TEST_P(CheckerOf, finds_every_contribution_added_twice) {
  const int planted = expect_refused([](RankSchedule& schedule, std::size_t lane) {
    auto& steps = schedule.lanes[lane].steps;
    const auto local =
        std::find_if(steps.begin(), steps.end(), [](const Step& step) { return step.kind == StepKind::local_reduce; });
    if (local == steps.end()) return false;
    const Step again = *local;
    steps.insert(local, again);
    return true;
  });
  EXPECT_EQ(planted > 0, is_reduction(GetParam().collective));
}

TEST_P(CheckerOf, finds_every_send_left_out_and_every_receive_left_out) {
  const int planted = expect_refused([](RankSchedule& schedule, std::size_t lane) {
    schedule.lanes.erase(schedule.lanes.begin() + static_cast<std::ptrdiff_t>(lane));
    for (Lane& later : schedule.lanes) later.after = -1;
    return true;
  });
  EXPECT_GT(planted, 0);
}

TEST_P(CheckerOf, finds_every_piece_at_the_wrong_place) {
  const int read = expect_refused([](RankSchedule& schedule, std::size_t lane) {
    Lane& moved = schedule.lanes[lane];
    const bool reads = std::any_of(moved.steps.begin(), moved.steps.end(), [](const Step& step) {
      return step.kind == StepKind::send_input || step.kind == StepKind::local_reduce ||
             step.kind == StepKind::local_copy;
    });
    moved.input_begin += 64;
    return reads;
  });
  const int written = expect_refused([](RankSchedule& schedule, std::size_t lane) {
    Lane& moved = schedule.lanes[lane];
    const bool writes = !moved.scratch && std::any_of(moved.steps.begin(), moved.steps.end(), [](const Step& step) {
      return step.kind == StepKind::finish || step.kind == StepKind::recv_copy || step.kind == StepKind::local_copy;
    });
    moved.output_begin += 64;
    return writes;
  });
  EXPECT_GT(read, 0);
  EXPECT_GT(written, 0);
}

TEST_P(CheckerOf, finds_every_deadlock_of_waits_that_follow_each_other) {
  // Every rank sends only after it has received everything.
  const auto right = schedules_of(request());
  auto schedules = right;
  bool everybody_waits = true;
  for (RankSchedule& schedule : schedules) {
    std::vector<Lane> ordered;
    for (const bool receiving : {true, false}) {
      for (Lane& lane : schedule.lanes) {
        const StepKind first = lane.steps[0].kind;
        if ((first == StepKind::recv_copy || first == StepKind::recv_reduce) != receiving) continue;
        lane.after = static_cast<int>(ordered.size()) - 1;
        ordered.push_back(lane);
      }
    }
    const StepKind first = ordered[0].steps[0].kind;
    everybody_waits &= first == StepKind::recv_copy || first == StepKind::recv_reduce;
    schedule.lanes = std::move(ordered);
  }
  if (everybody_waits) {
    EXPECT_TRUE(contains(complaint(request(), schedules), "deadlock")) << GetParam().name();
  }
}

std::vector<Planted> all_algorithms() {
  std::vector<Planted> all;
  for (const Collective collective : kCollectives) {
    for (const Algorithm algorithm : algorithms_of(collective)) all.push_back({collective, algorithm});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Planted, CheckerOf, ::testing::ValuesIn(all_algorithms()),
                         [](const auto& info) { return info.param.name(); });

TEST(Checker, finds_a_sum_out_of_rank_order) {
  auto schedules = schedules_of(sra(4, 1000));
  for (Lane& lane : schedules[0].lanes) {
    if (lane.steps[0].kind == StepKind::local_reduce) std::swap(lane.steps[1], lane.steps[2]);
  }
  EXPECT_NE(complaint(sra(4, 1000), schedules), "");
}

// Two ranks that add the same values in different orders would hold different bits.
TEST(Checker, finds_an_order_of_addition_that_differs_between_ranks) {
  Request request = request_of(Collective::all_reduce, Algorithm::one_shot, 3, 100);
  auto schedules = schedules_of(request);
  request.algorithm = Algorithm::tree;  // promises no particular order, but the same on all ranks
  auto& steps = schedules[1].lanes[0].steps;
  const auto first = std::find_if(steps.begin(), steps.end(), is_addition);
  std::swap(first[1], first[2]);
  EXPECT_TRUE(contains(complaint(request, schedules), "disagree"));
}

TEST(Checker, finds_an_owner_that_keeps_its_sum_as_it_was_before_it_was_encoded) {
  Request request = request_of(Collective::all_gather, Algorithm::ring, 3, 100);
  request.compressed = true;
  auto schedules = schedules_of(request);
  for (Step& step : schedules[1].lanes[0].steps) step.quantized = false;
  EXPECT_TRUE(contains(complaint(request, schedules), "disagree"));
}

TEST(Checker, finds_a_send_that_nobody_receives) {
  auto schedules = schedules_of(sra(3, 64));
  schedules[1].lanes.push_back({.chunk = 7, .count = 64, .steps = {{StepKind::send_input, 5, {2}}}, .scratch = true});
  EXPECT_TRUE(contains(complaint(sra(3, 64), schedules), "nobody receives"));
}

TEST(Checker, finds_a_deadlock_of_crossed_waits) {
  const Request request = request_of(Collective::all_gather, Algorithm::one_shot, 2, 200);
  auto schedules = schedules_of(request);
  for (RankSchedule& schedule : schedules) {  // receive first, then send
    const auto give = std::find_if(schedule.lanes.begin(), schedule.lanes.end(),
                                   [](const Lane& lane) { return lane.steps[0].kind == StepKind::send_input; });
    std::rotate(give, give + 1, schedule.lanes.end());
    schedule.lanes.back().after = static_cast<int>(schedule.lanes.size()) - 2;
  }
  EXPECT_TRUE(contains(complaint(request, schedules), "deadlock"));
}

TEST(Checker, finds_input_overwritten_before_it_was_sent) {
  Request request = sra(2, 64);
  request.algorithm = Algorithm::one_shot;
  auto schedules = schedules_of(request);
  auto& steps = schedules[0].lanes[0].steps;
  std::rotate(steps.begin(), steps.begin() + 1, steps.end());
  EXPECT_TRUE(contains(complaint(request, schedules), "overwritten"));
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

}  // namespace
}  // namespace qccl::plan
