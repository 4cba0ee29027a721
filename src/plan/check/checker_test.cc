#include "plan/check/checker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/check/coverage.h"

namespace qccl::plan {
namespace {

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

Status accept(const Requests& requests) {
  Status status = check(requests);
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

TEST(Checker, accepts_every_root_of_every_rooted_plan) {
  for (const Collective collective :
       {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter}) {
    for (const Algorithm algorithm : algorithms_of(collective)) {
      for (int world = 1; world <= 17; ++world) {
        Request request = request_of(collective, algorithm, world, 300);
        for (request.root = 0; request.root < world; ++request.root) {
          ASSERT_TRUE(accept(Requests(static_cast<std::size_t>(world), request)).ok());
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
            ASSERT_TRUE(accept(Requests(layout.size(), request)).ok());
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
        for (const int peer : step.peers) {
          if (request.hosts[static_cast<std::size_t>(peer)] == host) continue;
          (receives(step.kind) ? in : out)[host] += lane.count;
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

// ---- mistakes in every algorithm's plans (mistakes_test.cc plants others)

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

TEST_P(CheckerOf, finds_every_send_left_out_and_every_receive_left_out) {
  const int planted = expect_refused([](RankSchedule& schedule, std::size_t lane) {
    schedule.lanes.erase(schedule.lanes.begin() + static_cast<std::ptrdiff_t>(lane));
    for (Lane& later : schedule.lanes) later.after = -1;
    return true;
  });
  EXPECT_GT(planted, 0);
}

bool has_any(const Lane& lane, std::initializer_list<StepKind> kinds) {
  return std::ranges::any_of(lane.steps, [&](const Step& step) { return std::ranges::count(kinds, step.kind) > 0; });
}

TEST_P(CheckerOf, finds_every_piece_at_the_wrong_place) {
  const int read = expect_refused([](RankSchedule& schedule, std::size_t lane) {
    Lane& moved = schedule.lanes[lane];
    moved.input_begin += 64;
    return has_any(moved, {StepKind::send_input, StepKind::local_reduce, StepKind::local_copy});
  });
  const int written = expect_refused([](RankSchedule& schedule, std::size_t lane) {
    Lane& moved = schedule.lanes[lane];
    moved.output_begin += 64;
    return !moved.scratch && has_any(moved, {StepKind::finish, StepKind::recv_copy, StepKind::local_copy});
  });
  EXPECT_GT(read, 0);
  EXPECT_GT(written, 0);
}

std::vector<Planted> all_algorithms() {
  std::vector<Planted> all;
  for (const Collective collective : kEveryCollective) {
    if (collective == Collective::barrier) continue;
    for (const Algorithm algorithm : algorithms_of(collective)) all.push_back({collective, algorithm});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Planted, CheckerOf, ::testing::ValuesIn(all_algorithms()),
                         [](const auto& info) { return info.param.name(); });

TEST(Checker, finds_an_owner_that_keeps_its_unencoded_piece) {
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
