#include "plan/cost/cost.h"

#include <gtest/gtest.h>

namespace qccl::plan {
namespace {

constexpr std::uint64_t kLarge = 1 << 24;  // elements: 64 MiB
constexpr double kLargeBytes = 4.0 * kLarge;

constexpr MachineModel kLinks = {.wire_rate = 1e8, .wire = {1e-3, 0, 0}, .local = {1e-6, 0, 1e9}};

Request request_of(Algorithm algorithm, int world, std::uint64_t count, const std::vector<int>& hosts = {}) {
  return {.collective = Collective::all_reduce,
          .algorithm = algorithm,
          .world = world,
          .count = count,
          .slice_elements = 32768,
          .hosts = hosts};
}

struct Setting {
  std::vector<int> hosts{};
  Encoding encoding{};
  MachineModel links = kLinks;
};

CostEstimate price_of(Algorithm algorithm, int world, std::uint64_t count, const Setting& setting = {}) {
  Request request = request_of(algorithm, world, count, setting.hosts);
  request.compressed = setting.encoding.encoded_bytes < setting.encoding.element_bytes;
  return price(request, setting.hosts, setting.links, setting.encoding);
}

// Two sites of four hosts.
const Layout kTwoSites({0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 0, 0, 1, 1, 1, 1});

CostEstimate price_over_sites(Algorithm algorithm, std::uint64_t count, double site_rate = 0) {
  MachineModel links = kLinks;
  links.near_latency = 1e-5;
  links.site_rate = site_rate;
  return price(request_of(algorithm, 8, count, kTwoSites.sites), kTwoSites, links, {});
}

TEST(Cost, hops_inside_a_site_cost_the_near_latency) {
  EXPECT_NEAR(price_over_sites(Algorithm::one_shot, 256).first, 1e-3, 1e-9);
  EXPECT_NEAR(price_over_sites(Algorithm::recursive_doubling, 256).first, 1e-3 + 2e-5, 1e-9);
  EXPECT_NEAR(price_over_sites(Algorithm::ring, 256).first, 2 * (2e-3 + 5e-5), 1e-3 + 1e-9);
  EXPECT_NEAR(price_over_sites(Algorithm::hierarchical, 256).first, 2e-3 + 2e-5, 1e-9);
}

TEST(Cost, plans_that_use_shares_have_the_rate_that_these_are_worth) {
  Setting setting;
  const double sra = price_of(Algorithm::sra, 4, kLarge, setting).wire;
  const double ring = price_of(Algorithm::ring, 4, kLarge, setting).wire;
  setting.links.shares_rate = 2e8;
  EXPECT_NEAR(price_of(Algorithm::sra, 4, kLarge, setting).wire, sra / 2, 1e-9);
  EXPECT_EQ(price_of(Algorithm::ring, 4, kLarge, setting).wire, ring);
}

TEST(Cost, a_sites_ranks_share_its_line_to_other_sites) {
  const CostEstimate flat = price_over_sites(Algorithm::sra, kLarge, 1e8);
  const CostEstimate by_sites = price_over_sites(Algorithm::hierarchical, kLarge, 1e8);
  EXPECT_NEAR(flat.busiest_site_bytes / (4 * kLargeBytes), 1, 1e-3);
  EXPECT_NEAR(by_sites.busiest_site_bytes / kLargeBytes, 1, 1e-3);
  EXPECT_NEAR(flat.busiest_host_bytes, by_sites.busiest_host_bytes, 1e-3 * kLargeBytes);
  EXPECT_GE(flat.wire, flat.busiest_site_bytes / 1e8);
  EXPECT_EQ(price_of(Algorithm::sra, 8, kLarge).busiest_site_bytes, 0);
}

TEST(Cost, small_operations_cost_the_latencies_of_their_critical_path) {
  EXPECT_NEAR(price_of(Algorithm::one_shot, 4, 256).first, 1e-3, 1e-9);
  EXPECT_NEAR(price_of(Algorithm::sra, 4, 256).first, 2e-3, 1e-9);
  EXPECT_NEAR(price_of(Algorithm::ring, 4, 256).first, 6e-3, 1e-9);
  EXPECT_NEAR(price_of(Algorithm::recursive_doubling, 4, 256).first, 2e-3, 1e-9);
  EXPECT_EQ(price_of(Algorithm::ring, 4, 256).start, 0);
  EXPECT_EQ(price_of(Algorithm::sra, 1, 256).seconds, 0);
}

// The contention term for 4 ranks. Around a ring only one neighbour's streams come at once, so there is none.
double contention_seconds(Algorithm algorithm) { return algorithm == Algorithm::ring ? 0 : 2 * 131072 / 1e8; }

// The order of additions makes an owner wait for a slice: `qccl plan simulate` has 7.89 ms for 4 hosts at 1 Gbit/s, of
// which six slices take 6.58 ms and a seventh 1.1 ms. What is only copied waits for nothing: 3.4 ms for three slices.
TEST(Cost, sums_of_one_slice_wait_for_one_slice) {
  EXPECT_NEAR(price_of(Algorithm::sra, 4, 4 * 32768).wire / (7 * 131072 / 1e8), 1, 1e-2);
  EXPECT_NEAR(price_of(Algorithm::ring, 4, 4 * 32768).wire / (6 * 131072 / 1e8), 1, 1e-2);
  Request request = request_of(Algorithm::one_shot, 4, 32768);
  request.collective = Collective::all_to_all;
  EXPECT_NEAR(price(request, {}, kLinks, {}).wire / (3 * 131072 / 1e8), 1, 1e-2);
  EXPECT_GT(price_of(Algorithm::sra, 4, 4 * 65536).wire / (1.5 * 8 * 131072 / 1e8), 1.1);
}

TEST(Cost, large_operations_cost_the_busiest_hosts_bytes) {
  for (const Algorithm algorithm : {Algorithm::sra, Algorithm::ring}) {
    const CostEstimate price = price_of(algorithm, 4, kLarge);
    EXPECT_NEAR(price.mean_sent_bytes / (2 * 3 / 4.0 * kLargeBytes), 1, 1e-3);
    EXPECT_NEAR((price.wire - contention_seconds(algorithm)) / (1.5 * kLargeBytes / 1e8), 1, 1e-3);
    EXPECT_GE(price.seconds, price.wire + 1e-3);
  }
  const double one_shot = price_of(Algorithm::one_shot, 4, kLarge).wire - contention_seconds(Algorithm::one_shot);
  EXPECT_NEAR(one_shot / (3 * kLargeBytes / 1e8), 1, 1e-3);
}

TEST(Cost, encoded_bytes_are_what_the_wire_carries) {
  const CostEstimate raw = price_of(Algorithm::sra, 4, kLarge);
  const CostEstimate coded = price_of(Algorithm::sra, 4, kLarge, {{}, {.encoded_bytes = 0.5}});
  EXPECT_NEAR(raw.wire / coded.wire, 8, 0.05);
}

TEST(Cost, ranks_of_a_host_share_its_link_and_hierarchies_use_it_less) {
  const std::vector<int> hosts = {0, 0, 0, 0, 1, 1, 1, 1};
  const CostEstimate flat = price_of(Algorithm::sra, 8, kLarge, {hosts});
  const CostEstimate stacked = price_of(Algorithm::hierarchical, 8, kLarge, {hosts});
  // Flat, each rank gives half of its 2 * 7/8 to the other host; hierarchical, a host gives it once.
  EXPECT_NEAR(flat.wire / stacked.wire, 4, 0.05);
  EXPECT_EQ(price_of(Algorithm::sra, 8, kLarge, {{0, 0, 0, 0, 0, 0, 0, 0}}).busiest_host_bytes, 0);
}

// An uncompressed SRA between two ranks: half is sent and half received and added; then the same again, but copied.
TEST(Cost, processors_move_add_and_copy) {
  MachineModel links = {.local = {0, 1e-6, 4e9}, .copy_rate = 2e9, .add_rate = 1e9};
  const Encoding encoding{.frame_bytes = 0};
  const double half = kLargeBytes / 2;
  const double frames = 4 * (kLarge / 2 / 32768);
  // Two frames out and two in belong to the critical path.
  const double expected = 4 * half / 4e9 + half / 1e9 + half / 2e9 + (frames - 4) * 1e-6;
  EXPECT_NEAR(price_of(Algorithm::sra, 2, kLarge, {{0, 0}, encoding, links}).processor / expected, 1, 1e-9);
  // On one core both ranks take turns.
  links.cores = 1;
  EXPECT_NEAR(price_of(Algorithm::sra, 2, kLarge, {{0, 0}, encoding, links}).processor / (2 * expected + 4e-6), 1,
              1e-9);
}

// Compressed, it encodes a half, decodes and adds one, encodes and decodes the sum, and decodes the other sum; its own
// half is copied first.
TEST(Cost, processors_encode_and_decode) {
  const MachineModel links = {.copy_rate = 8e9, .encode_rate = 1e9, .decode_rate = 2e9};
  const Encoding encoding{.encoded_bytes = 0.5, .frame_bytes = 0};
  const double half = kLargeBytes / 2;
  const double expected = 2 * half / 1e9 + 3 * half / 2e9 + half / 8e9;
  const double first = price_of(Algorithm::sra, 2, kLarge, {{}, encoding, links}).processor;
  // The rank whose part comes second adds it instead, which costs nothing here.
  EXPECT_NEAR(first / expected, 1, 1e-9);
}

TEST(Cost, hosts_of_one_machine_share_its_cores) {
  MachineModel links = {.wire = {0, 0, 1e9}};
  const double each = price_of(Algorithm::sra, 4, kLarge, {{}, {}, links}).processor;
  links.cores = 2;
  EXPECT_EQ(price_of(Algorithm::sra, 4, kLarge, {{}, {}, links}).processor, each);
  links.hosts_per_machine = 4;
  EXPECT_NEAR(price_of(Algorithm::sra, 4, kLarge, {{}, {}, links}).processor / each, 2, 1e-6);
}

TEST(Cost, an_idle_links_burst_leaves_at_once) {
  MachineModel links = kLinks;
  const double without = price_of(Algorithm::sra, 4, kLarge, {{}, {}, links}).wire;
  links.burst_bytes = 1e6;
  EXPECT_NEAR(without - price_of(Algorithm::sra, 4, kLarge, {{}, {}, links}).wire, 1e-2, 1e-9);
}

TEST(Cost, pieces_sent_in_turn_take_the_link_in_turn) {
  Request request = request_of(Algorithm::pairwise, 5, 65536);
  request.collective = Collective::all_to_all;
  const CostEstimate price = qccl::plan::price(request, {}, kLinks, {});
  EXPECT_NEAR(price.first, 1e-3, 1e-9);
  EXPECT_NEAR(price.wire / (4 * 4 * 65536 / 1e8), 1, 1e-2);
}

// 4 slices a lane, of 10 bytes each.
double passage(const std::vector<Lane>& lanes) {
  return longest_passage({lanes}, 100, [](const Lane& lane) { return static_cast<double>(lane.count) / 10; });
}

TEST(Passage, of_lanes_in_turn_is_their_sum_and_slice_by_slice_one_slice_more) {
  const Lane first{.count = 400};
  EXPECT_EQ(passage({first, first}), 0) << "without an order";
  EXPECT_EQ(passage({first, {.count = 400, .after = 0}, {.count = 400, .after = 1}}), 120);
  EXPECT_EQ(passage({first, {.count = 400, .slice_by_slice = true, .after = 0}}), 50);
  EXPECT_EQ(passage({first, {.count = 100, .slice_by_slice = true, .after = 0}}), 50) << "the last slice waits";
  EXPECT_EQ(passage({first, {.count = 400, .slice_by_slice = true, .after = 0}, {.count = 100, .after = 1}}), 60);
  EXPECT_EQ(passage({first, {.count = 400, .after = 0}, {.count = 400, .after = 0}}), 80) << "side by side";
}

// Choices in large groups are made from samples.
TEST(Cost, of_sampled_ranks_is_close_to_that_of_all) {
  std::vector<int> hosts;
  for (int rank = 0; rank < 96; ++rank) hosts.push_back(rank < 4 ? 0 : 1 + (rank - 4) / 8);
  const MachineModel links = {.wire_rate = 1e9, .wire = {1e-5, 1e-6, 2e9}, .local = {1e-6, 1e-6, 9e9}, .add_rate = 8e9};
  for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::broadcast,
                                      Collective::all_gather, Collective::reduce_scatter}) {
    for (const Algorithm algorithm : algorithms_of(collective)) {
      Request request = request_of(algorithm, 96, 96 * 64 * 64, hosts);
      request.collective = collective;
      request.root = 50;
      const double all = price(request, hosts, links, {}).seconds;
      EXPECT_NEAR(price(request, hosts, links, {}, 16).seconds / all, 1, 0.1)
          << to_string(collective) << " " << to_string(algorithm);
    }
  }
}

// ---- work of steps, in passes over a chunk

StepWork work_of_rank(Algorithm algorithm, int rank, bool compressed) {
  const Request request{
      .algorithm = algorithm, .world = 4, .count = 4096, .slice_elements = 64, .compressed = compressed};
  StepWork all;
  for (const Lane& lane : schedule_of(request, rank).lanes) {
    for (std::size_t step = 0; step < lane.steps.size(); ++step) {
      const StepWork work = work_of(lane, step, compressed);
      all.encodes += work.encodes;
      all.decodes += work.decodes;
      all.adds += work.adds;
      all.copies += work.copies;
    }
  }
  return all;
}

TEST(StepWork, of_a_rank_in_an_all_reduce_of_four) {
  // SRA has four chunks. It encodes three parts for others and the sum; it decodes three parts, the sum and three other
  // sums. The first rank's own part is the first of its sum.
  EXPECT_EQ(work_of_rank(Algorithm::sra, 1, false), (StepWork{.adds = 3, .copies = 3}));
  EXPECT_EQ(work_of_rank(Algorithm::sra, 1, true), (StepWork{.encodes = 4, .decodes = 7, .adds = 1}));
  EXPECT_EQ(work_of_rank(Algorithm::sra, 0, true), (StepWork{.encodes = 4, .decodes = 7, .copies = 1}));
  // One-shot has one.
  EXPECT_EQ(work_of_rank(Algorithm::one_shot, 2, false), (StepWork{.adds = 3}));
  EXPECT_EQ(work_of_rank(Algorithm::one_shot, 2, true), (StepWork{.encodes = 1, .decodes = 4, .copies = 1}));
  // A ring encodes at every hop: a rank starts one partial sum and passes two on.
  EXPECT_EQ(work_of_rank(Algorithm::ring, 3, true), (StepWork{.encodes = 4, .decodes = 7, .adds = 3}));
  EXPECT_EQ(work_of_rank(Algorithm::ring, 3, false), (StepWork{.adds = 3, .copies = 3}));
}

// ---- profiles

TEST(Profile, reads_back_what_it_writes) {
  const std::string text = to_text(default_profile());
  const auto profile = parse_profile(text);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(to_text(profile.value()), text);
}

TEST(Profile, missing_keys_have_the_default_values) {
  const auto profile = parse_profile("# a slow wire\n\nwire.host_Gbps 0.1  # and this is a comment too\r\n");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_NEAR(profile.value().wire_rate, 12.5e6, 1);
  EXPECT_EQ(profile.value().shm.latency, default_profile().shm.latency);
  EXPECT_EQ(profile.value().machine, default_profile().machine);
}

TEST(Profile, zero_is_a_value) {
  const auto profile = parse_profile("wire.latency_us 0\n");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile.value().wire.latency, 0);
}

TEST(Profile, names_the_wrong_line) {
  for (const char* line : {"wire.latency_us", "wire.latency_us fast", "wire.latency_us -1", "wire.latency_us nan",
                           "wire.latency_us 1 2", "wire.latency_us inf", "wire.latency_us 1e15", "wires.latency_us 1",
                           "codec_GBps", "codec_GBps minmax 1", "codec_GBps minmax 0 1", "codec_GBps minmax 1 2 3"}) {
    const auto profile = parse_profile(std::string("copy_GBps 9\n") + line + "\nadd_GBps 9\n");
    ASSERT_FALSE(profile.ok()) << line;
    EXPECT_EQ(profile.error().kind, ErrorKind::invalid_argument);
    EXPECT_EQ(profile.error().message, "line 2 of the profile is not understood: \"" + std::string(line) + "\"");
  }
}

TEST(Profile, the_longest_matching_beginning_gives_a_codecs_speed) {
  Profile profile;
  profile.codecs = {{"minmax", 5, 6}, {"minmax:bits=4", 7, 8}, {"cast", 9, 4}};
  EXPECT_EQ(profile.speed_of("minmax:bits=4,bucket_size=1024").encode_rate, 7);
  EXPECT_EQ(profile.speed_of("minmax:bits=3,bucket_size=1024").encode_rate, 5);
  // An unknown codec counts as slow as the slowest.
  EXPECT_EQ(profile.speed_of("h4").encode_rate, 5);
  EXPECT_EQ(profile.speed_of("h4").decode_rate, 4);
  EXPECT_EQ(profile.speed_of("none").encode_rate, 0);
}

TEST(Profile, an_entropy_code_says_nothing_of_other_codecs) {
  const Profile& known = default_profile();
  EXPECT_LT(known.speed_of("grid:entropy=rans,relative=0.25").encode_rate, 2e9);
  EXPECT_GT(known.speed_of("grid:relative=0.25").encode_rate, 2e9);
  EXPECT_EQ(known.speed_of("h4").encode_rate, known.speed_of("minmax").encode_rate);
  const auto profile = parse_profile("codec_GBps grid:entropy=rans,relative=1 1 1\n");
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(profile.value().speed_of("h4").encode_rate, known.speed_of("h4").encode_rate);
}

TEST(Profile, a_later_line_for_the_same_codec_wins) {
  const auto profile = parse_profile("codec_GBps h4 1 2\ncodec_GBps h4 3 4\n");
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(profile.value().speed_of("h4").encode_rate, 3e9);
  EXPECT_EQ(profile.value().codecs.size(), default_profile().codecs.size() + 1);
}

}  // namespace
}  // namespace qccl::plan
