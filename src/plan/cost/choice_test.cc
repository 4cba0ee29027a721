#include "plan/cost/cost.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

constexpr std::uint64_t kMiB = 1 << 18;  // in elements of float32

std::vector<int> spread(int hosts, int each) {
  std::vector<int> layout;
  for (int rank = 0; rank < hosts * each; ++rank) layout.push_back(rank / each);
  return layout;
}

MachineModel links() { return links_of(default_profile(), "none"); }

SelectionKey key(Collective collective, std::uint64_t elements, bool compressed = false) {
  return {.collective = collective,
          .elements = elements,
          .compressed = compressed,
          .encoded_bytes = compressed ? 0.5 : 4,
          .bucket_size = compressed ? 1024u : 1u,
          .slice_elements = 32768};
}

Algorithm chosen(const SelectionKey& key, const std::vector<int>& hosts, double wire_rate = 1.25e9) {
  MachineModel links = qccl::plan::links_of(default_profile(), key.compressed ? "minmax:bits=4" : "none");
  links.wire_rate = wire_rate;
  return choose(key, hosts, links);
}

TEST(Choice, is_one_shot_or_doubling_for_small_sums_and_sra_for_large_ones_on_one_host) {
  for (const int ranks : {2, 4, 8}) {
    const Algorithm small = ranks == 2 ? Algorithm::one_shot : Algorithm::recursive_doubling;
    EXPECT_EQ(chosen(key(Collective::all_reduce, 1), spread(1, ranks)), small);
    EXPECT_EQ(chosen(key(Collective::all_reduce, 64 * kMiB), spread(1, ranks)), Algorithm::sra);
    EXPECT_EQ(chosen(key(Collective::all_reduce, 1), spread(ranks, 1)), Algorithm::one_shot);
    EXPECT_EQ(chosen(key(Collective::all_reduce, 64 * kMiB), spread(ranks, 1)), Algorithm::sra);
  }
}

TEST(Choice, is_hierarchical_where_hosts_with_several_ranks_share_a_link) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::broadcast, Collective::all_gather, Collective::reduce_scatter}) {
    for (const bool compressed : {false, true}) {
      EXPECT_EQ(chosen(key(collective, 16 * kMiB, compressed), spread(2, 4), 125e6), Algorithm::hierarchical)
          << to_string(collective) << compressed;
    }
  }
}

// Between two hosts a binomial tree also crosses the wire once.
TEST(Choice, of_a_reduce_sends_no_more_over_the_wire_than_a_hierarchy) {
  MachineModel slow = links();
  slow.wire_rate = 125e6;
  for (const bool compressed : {false, true}) {
    for (const auto& hosts : {spread(2, 4), spread(4, 4)}) {
      const Choice choice = explain(key(Collective::reduce, 16 * kMiB, compressed), hosts, slow);
      double own = 0;
      double hierarchical = 0;
      for (const Candidate& each : choice.candidates) {
        if (each.algorithm == choice.algorithm) own = each.price.busiest_host_bytes;
        if (each.algorithm == Algorithm::hierarchical) hierarchical = each.price.busiest_host_bytes;
      }
      EXPECT_LE(own, 1.01 * hierarchical);
    }
  }
}

TEST(Choice, takes_log2_steps_for_small_data_on_many_ranks) {
  EXPECT_EQ(chosen(key(Collective::all_reduce, 64), spread(256, 1)), Algorithm::recursive_doubling);
  EXPECT_EQ(chosen(key(Collective::broadcast, 64), spread(256, 1)), Algorithm::binomial);
  EXPECT_EQ(chosen(key(Collective::reduce, 64), spread(256, 1)), Algorithm::binomial);
}

TEST(Choice, never_rounds_partial_sums_at_every_hop) {
  for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    for (const auto& hosts : {spread(1, 4), spread(2, 4), spread(4, 1), spread(64, 1), spread(128, 1)}) {
      for (std::uint64_t elements = 1; elements <= 64 * kMiB; elements *= 16) {
        for (const DataType type : {DataType::float32, DataType::float16, DataType::bfloat16}) {
          SelectionKey asked = key(collective, elements, type == DataType::float32);
          asked.type = type;
          const Algorithm algorithm = chosen(asked, hosts);
          EXPECT_FALSE(entry_of(algorithm).rounds_at_every_hop)
              << fmt::format("{} of {} {}: {}", to_string(collective), elements, to_string(type), to_string(algorithm));
        }
      }
    }
  }
}

TEST(Choice, never_takes_an_algorithm_that_is_only_on_request) {
  int offered = 0;
  for (const Collective collective : kEveryCollective) {
    for (const auto& hosts : {spread(1, 4), spread(2, 4), spread(16, 1)}) {
      for (std::uint64_t elements = 64; elements <= 64 * kMiB; elements *= 16) {
        const Choice choice = explain(key(collective, elements), hosts, links());
        EXPECT_FALSE(builder_of(collective, choice.algorithm)->only_on_request) << to_string(choice.algorithm);
        EXPECT_FALSE(builder_of(collective, chosen(key(collective, elements), hosts))->only_on_request);
        for (const Candidate& each : choice.candidates) {
          if (!builder_of(collective, each.algorithm)->only_on_request) continue;
          EXPECT_EQ(each.unsupported_reason, "not measured against the others: only on request");
          ++offered;
        }
      }
    }
  }
  EXPECT_GT(offered, 0);
}

TEST(Choice, never_takes_compressed_one_shot_sums_if_sra_exists) {
  for (std::uint64_t elements = 1; elements <= 64 * kMiB; elements *= 16) {
    for (const int ranks : {2, 4, 8}) {
      EXPECT_EQ(chosen(key(Collective::all_reduce, elements, true), spread(ranks, 1)), Algorithm::sra);
    }
  }
}

// Pairwise adds in rank order, but not here: like any other algorithm it has to save a tenth.
TEST(Choice, of_an_all_to_all_takes_turns_where_they_save_a_tenth) {
  EXPECT_EQ(chosen(key(Collective::all_to_all, kMiB), spread(4, 1)), Algorithm::pairwise);
  const Choice long_pieces = explain(key(Collective::all_to_all, 4 * kMiB), spread(4, 1), links());
  EXPECT_EQ(long_pieces.algorithm, Algorithm::one_shot);
  EXPECT_EQ(long_pieces.reason, "pairwise would save 7 % only");
}

TEST(Choice, is_the_cheapest_within_a_tenth_and_says_why) {
  for (const Collective collective : kEveryCollective) {
    for (const auto& hosts : {spread(1, 1), spread(1, 2), spread(1, 8), spread(2, 4), spread(8, 1), spread(16, 2)}) {
      for (std::uint64_t elements = 4; elements <= 16 * kMiB; elements *= 8) {
        const Choice choice = explain(key(collective, elements), hosts, links());
        EXPECT_EQ(choice.algorithm, choose(key(collective, elements), hosts, links()));
        EXPECT_EQ(choice.candidates.size(), algorithms_of(collective).size());
        EXPECT_NE(choice.reason, "");
        double best = 1e9;
        double own = 0;
        for (const Candidate& each : choice.candidates) {
          const CollectiveBuilder& builder = *builder_of(collective, each.algorithm);
          if (!builder.only_on_request) best = std::min(best, each.price.seconds);
          if (each.algorithm == choice.algorithm) own = each.price.seconds;
        }
        EXPECT_LE(0.9 * own, best * 1.001) << to_string(collective) << " " << elements;
      }
    }
  }
}

TEST(Choice, says_that_a_compressed_sum_is_encoded_twice_at_most) {
  const auto reason = [](bool compressed) {
    return explain(key(Collective::all_reduce, 16 * kMiB, compressed), spread(2, 1), links()).reason;
  };
  EXPECT_EQ(reason(true), "compressed: an element is encoded twice at most, whatever the world");
  EXPECT_EQ(reason(false), "predicted to be the fastest");
}

// Hosts of four ranks, two hosts to a site, 50 ms between the sites.
TEST(Choice, of_a_hierarchy_is_by_sites_where_their_lines_are_slow) {
  const Layout layout(spread(4, 4), spread(2, 8));
  MachineModel model = links();
  model.wire.latency = 50e-3;
  const SelectionKey sum = key(Collective::all_reduce, 16 * kMiB);
  EXPECT_EQ(hierarchy_of(sum, layout, model), layout.hosts);
  model.site_rate = 12.5e6;
  EXPECT_EQ(hierarchy_of(sum, layout, model), layout.sites);
  EXPECT_EQ(choose(sum, layout, model), Algorithm::hierarchical);
  EXPECT_EQ(explain(sum, layout, model).algorithm, Algorithm::hierarchical);
}

TEST(Choice, over_sites_adds_inside_them_first) {
  const Layout layout(spread(8, 1), spread(2, 4));
  MachineModel model = links();
  model.wire.latency = 50e-3;
  model.wire_rate = 125e6;
  model.window_bytes = window_of(model.wire_rate, 0.1, kMostWindowBytes);
  const SelectionKey sum = key(Collective::all_reduce, kMiB);
  EXPECT_EQ(choose(sum, layout.hosts, model), Algorithm::one_shot);
  EXPECT_EQ(choose(sum, layout, model), Algorithm::recursive_doubling);
  EXPECT_EQ(choose(key(Collective::all_gather, kMiB), layout.hosts, model), Algorithm::one_shot);
  model.site_rate = 125e6;
  EXPECT_EQ(choose(key(Collective::all_gather, kMiB), layout, model), Algorithm::hierarchical);
}

TEST(Choice, follows_the_profile) {
  for (const auto& [latency, expected] : {std::pair(5e-3, Algorithm::one_shot), std::pair(1e-9, Algorithm::sra)}) {
    MachineModel model = links();
    model.wire.latency = latency;
    EXPECT_EQ(choose(key(Collective::all_reduce, kMiB / 16), spread(4, 1), model), expected);
  }
}

// A line between `hosts` hosts of a rank each.
MachineModel line_of(double mbit, double latency) {
  MachineModel links = qccl::plan::links_of(default_profile(), "none");
  links.wire_rate = mbit * 125e3;
  links.wire.latency = latency;
  links.window_bytes = window_of(links.wire_rate, 2 * latency, kMostWindowBytes);
  return links;
}

Algorithm chosen_between(int hosts, std::uint64_t elements, const MachineModel& links) {
  SelectionKey sum = key(Collective::all_reduce, elements);
  sum.slice_elements = 2048;
  return choose(sum, spread(hosts, 1), links);
}

TEST(Choice, goes_around_where_all_at_once_would_crowd_the_line) {
  EXPECT_EQ(chosen_between(8, kMiB, line_of(25, 1e-3)), Algorithm::ring);
  EXPECT_EQ(chosen_between(16, 2 * kMiB, line_of(20, 10e-3)), Algorithm::ring);
  EXPECT_EQ(chosen_between(4, kMiB, line_of(200, 10e-3)), Algorithm::sra);
  EXPECT_EQ(chosen_between(8, 4 * kMiB, line_of(1000, 50e-3)), Algorithm::sra);
}

// A ring's ranks send other data while a latency passes: 14 of 40 ms, of which two cost time.
TEST(Cost, a_ring_between_distant_ranks_hides_latencies) {
  SelectionKey sum = key(Collective::all_reduce, 4 * kMiB);
  sum.slice_elements = 2048;
  const CostEstimate far = predict(sum, Algorithm::ring, spread(8, 1), line_of(50, 40e-3));
  EXPECT_NEAR(far.seconds, 1.324, 0.05 * 1.324);  // as measured
  const CostEstimate short_sum =
      predict(key(Collective::all_reduce, 2048), Algorithm::ring, spread(8, 1), line_of(50, 40e-3));
  EXPECT_GT(short_sum.seconds, 14 * 40e-3);
}

TEST(SizeClass, has_four_to_each_doubling) {
  int last = -1;
  for (std::uint64_t elements = 0; elements < 100'000; ++elements) {
    const int number = size_class(elements);
    EXPECT_TRUE(number == last || number == last + 1) << elements;
    last = number;
    EXPECT_LE(least_of_class(number), elements);
    EXPECT_GT(least_of_class(number + 1), elements);
    EXPECT_EQ(size_class(least_of_class(number)), number);
  }
  EXPECT_EQ(size_class(1 << 21) - size_class(1 << 20), 4);
  EXPECT_EQ(least_of_class(size_class(std::uint64_t{1} << 62)), std::uint64_t{1} << 62);
}

}  // namespace
}  // namespace qccl::plan
