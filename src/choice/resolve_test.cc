// The choice of algorithms, and the plans that calls find again.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "group/plan_cache.h"
#include "wire/frame.h"

namespace qccl::comm {
namespace {

const std::vector<int> kTwoHosts = {0, 0, 0, 0, 4, 4, 4, 4};
const std::vector<int> kFourHosts = {0, 1, 2, 3};
const std::vector<int> kOneHost = {0, 0, 0, 0};

CallClass sum_of(std::uint64_t elements, const Compression& compression = none()) {
  return {Collective::all_reduce, elements, DataType::float32, compression};
}

Algorithm chosen(const CostEnvironment& environment, const std::vector<int>& hosts, std::uint64_t elements) {
  return AlgorithmTable(environment, hosts).choose(sum_of(elements));
}

CostEnvironment slow_wire() {
  CostEnvironment environment;
  environment.profile.wire_rate = 125e6;
  return environment;
}

TEST(AlgorithmTable, takes_the_cheapest_plan_and_remembers_it) {
  AlgorithmTable table(slow_wire(), kTwoHosts);
  for (int round = 0; round < 2; ++round) {
    for (const std::uint64_t elements : {1u, 100u, 100'000u, 1u << 24}) {
      for (const Compression& codec : {none(), minmax({.bits = 4}), cast()}) {
        EXPECT_EQ(table.choose(sum_of(elements, codec)), table.explain(sum_of(elements, codec)).algorithm);
      }
    }
  }
  EXPECT_EQ(table.choose(sum_of(1 << 24)), Algorithm::hierarchical);
  EXPECT_EQ(table.choose(sum_of(1 << 24, minmax({.bits = 4}))), Algorithm::hierarchical);
}

// Each rank has a link of its own then, whichever host it is on.
TEST(AlgorithmTable, of_paced_ranks_ignores_hosts) {
  CostEnvironment paced = slow_wire();
  paced.paced_rate = 12.5e6;
  EXPECT_EQ(chosen(paced, kTwoHosts, 1 << 24), Algorithm::sra);
}

// A message between containers of one machine takes no longer than over loopback.
TEST(AlgorithmTable, of_hosts_on_one_machine_takes_more_hops_for_fewer_messages) {
  EXPECT_EQ(chosen({}, kFourHosts, 1), Algorithm::one_shot);
  EXPECT_EQ(chosen({.one_machine = true}, kFourHosts, 1), Algorithm::recursive_doubling);
}

// The work of all ranks counts there, not the time that one of them waits.
TEST(AlgorithmTable, of_hosts_that_share_cores_sends_fewer_messages_up_to_larger_sizes) {
  EXPECT_EQ(chosen({.one_machine = true}, kFourHosts, 1 << 13), Algorithm::sra);
  for (const std::size_t elements : {1, 64, 1 << 10, 1 << 13}) {
    EXPECT_EQ(chosen({.shared_cores = 2, .one_machine = true}, kFourHosts, elements), Algorithm::recursive_doubling)
        << elements;
  }
}

// The profile was measured with ranks that take turns.
TEST(AlgorithmTable, of_one_host_chooses_alike_whether_or_not_ranks_share_cores) {
  for (std::size_t elements = 1; elements <= 1 << 20; elements *= 2) {
    EXPECT_EQ(chosen({.shared_cores = 2, .one_machine = true}, kOneHost, elements),
              chosen({.one_machine = true}, kOneHost, elements));
  }
}

// In a ring, a rank's streams come from one peer only.
TEST(AlgorithmTable, of_ranks_that_share_cores_takes_the_ring_for_long_streams_over_tcp) {
  EXPECT_EQ(chosen({.tcp_inside = true}, kOneHost, 1 << 20), Algorithm::sra);
  EXPECT_EQ(chosen({.tcp_inside = true, .shared_cores = 2}, kOneHost, 1 << 20), Algorithm::ring);
  EXPECT_EQ(chosen({.tcp_inside = true, .shared_cores = 2}, kOneHost, 1 << 15), Algorithm::sra);
  EXPECT_EQ(chosen({.shared_cores = 2}, kOneHost, 1 << 20), Algorithm::sra);
}

// At 10 Gbit/s and 50 ms from rank to rank, waits cost more than bytes.
TEST(AlgorithmTable, of_distant_hosts_takes_one_step_for_what_the_link_carries_meanwhile) {
  const auto chosen_far = [](std::uint64_t elements, const Compression& compression) {
    AlgorithmTable table({}, kFourHosts, {.round_trip = 0.1});
    return table.choose({Collective::all_reduce, elements, DataType::float32, compression});
  };
  EXPECT_EQ(chosen_far(1 << 18, none()), Algorithm::one_shot);
  EXPECT_EQ(chosen_far(1 << 22, minmax({.bits = 4})), Algorithm::one_shot);
  EXPECT_EQ(chosen_far(1 << 26, none()), Algorithm::sra);
}

// One step is fast for each, but their bytes share the line.
TEST(AlgorithmTable, of_calls_that_are_made_together_is_chosen_for_all_of_them) {
  AlgorithmTable table({}, kFourHosts, {.round_trip = 0.1});
  GroupDefaults defaults;
  defaults.hosts.assign(kFourHosts.begin(), kFourHosts.end());
  defaults.algorithms = &table;
  const auto resolved = [&](std::size_t together) {
    return resolve({Collective::all_reduce, nullptr, nullptr, 1 << 18, DataType::float32, {.together = together}}, 4,
                   defaults)
        .take_or_throw();
  };
  EXPECT_EQ(resolved(0).algorithm, Algorithm::one_shot);
  EXPECT_EQ(resolved(1 << 10).algorithm, Algorithm::one_shot);
  EXPECT_EQ(resolved(1 << 26).algorithm, Algorithm::sra);
  EXPECT_EQ(resolved(1 << 26).count, std::uint64_t{1} << 18);
  EXPECT_TRUE(explain_algorithm(resolved(1 << 26), 4, {.together = 1 << 26}, defaults).starts_with("sra, "));
}

// Two sites of four hosts, 50 ms apart; each site has a line of 1 Gbit/s.
TEST(AlgorithmTable, of_sites_goes_over_them_where_each_element_should_cross_once) {
  const std::vector<int> hosts = {0, 1, 2, 3, 4, 5, 6, 7};
  const Distance distance{.round_trip = 0.1, .near_round_trip = 2e-4, .sites = {0, 0, 0, 0, 4, 4, 4, 4}};
  CostEnvironment environment;
  environment.profile.site_rate = 125e6;
  AlgorithmTable table(environment, hosts, distance);
  GroupDefaults defaults;
  defaults.window_bytes = environment.window_bytes(distance.round_trip);
  defaults.hosts.assign(hosts.begin(), hosts.end());
  defaults.sites.assign(distance.sites.begin(), distance.sites.end());
  defaults.algorithms = &table;
  const CallOptions options;
  const CollectiveCall call{Collective::all_reduce, nullptr, nullptr, 1 << 24, DataType::float32, options};
  const engine::ResolvedCall over_sites = resolve(call, 8, defaults).take_or_throw();
  EXPECT_EQ(over_sites.algorithm, Algorithm::hierarchical);
  EXPECT_EQ(over_sites.hosts, defaults.sites);
  EXPECT_TRUE(explain_algorithm(over_sites, 8, options, defaults).starts_with("hierarchical over sites, "));
  for (const std::size_t elements : {1u << 18, 1u << 24}) {
    EXPECT_NE(AlgorithmTable(environment, hosts, {.round_trip = 0.1}).choose(sum_of(elements)),
              table.choose(sum_of(elements)));
  }
}

TEST(CostEnvironment, steps_inside_a_site_take_its_own_round_trip) {
  const plan::MachineModel links = CostEnvironment().links("none", {.round_trip = 20e-3, .near_round_trip = 5e-4});
  EXPECT_EQ(links.wire.latency, 10e-3);
  EXPECT_EQ(links.near_latency, 2.5e-4);
  EXPECT_EQ(CostEnvironment().links("none", {.round_trip = 20e-3}).near_latency,
            CostEnvironment().profile.wire.latency);
}

TEST(Sites, are_lists_of_ranks) {
  EXPECT_EQ(parse_sites("0-3,4-7").take_or_throw(), (std::vector{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(parse_sites("4+0-1,2-3").take_or_throw(), (std::vector{0, 0, 1, 1, 0}));
  EXPECT_EQ(parse_sites("0").take_or_throw(), (std::vector{0}));
  EXPECT_TRUE(parse_sites("").take_or_throw().empty());
}

TEST(Sites, lists_that_are_wrong_name_the_variable_and_the_fault) {
  const std::pair<std::string, std::string> cases[] = {
      {"0-3,3-5", "rank 3 is listed twice"},   {"0-3,5", "rank 4 is missing"},
      {"0-3,", "\"\" is no range of ranks"},   {"0-3;4-7", "\"0-3;4-7\" is no range of ranks"},
      {"3-0", "\"3-0\" is no range of ranks"}, {"-1", "\"-1\" is no range of ranks"},
      {"0-99999999", "is no range of ranks"},  {std::string(2000, '0'), "longer than 1024 characters"}};
  for (const auto& [text, fault] : cases) {
    const auto sites = parse_sites(text);
    ASSERT_FALSE(sites.ok()) << text;
    EXPECT_EQ(sites.error().kind, ErrorKind::invalid_argument);
    EXPECT_NE(sites.error().message.find("QCCL_SITES=" + text.substr(0, 10)), std::string::npos);
    EXPECT_NE(sites.error().message.find(fault), std::string::npos) << sites.error().message;
  }
  EXPECT_TRUE(check_sites("0-3,4-7", 8).ok());
  EXPECT_TRUE(check_sites("", 8).ok());
  EXPECT_EQ(check_sites("0-3,4-7", 6).error().message, "QCCL_SITES=0-3,4-7 is for 8 ranks, this job has 6");
}

// One direction may measure a millisecond and the other less: whatever ranks measure, all derive the same.
TEST(Sites, are_what_ranks_link_to_each_other) {
  EXPECT_EQ(sites_of_nearest(std::vector<std::uint64_t>{0, 0, 2, 2}), (std::vector{0, 0, 2, 2}));
  EXPECT_EQ(sites_of_nearest(std::vector<std::uint64_t>{0, 0, 1, 3}), (std::vector{0, 0, 0, 3}));
  EXPECT_EQ(sites_of_nearest(std::vector<std::uint64_t>{3, 1, UINT64_MAX}), (std::vector{0, 1, 2}));
  EXPECT_TRUE(unless_one({4, 4, 4}).empty());
  EXPECT_EQ(unless_one({4, 4, 5}), (std::vector{4, 4, 5}));
}

TEST(CostEnvironment, gives_distant_ranks_a_window_that_fills_the_link) {
  CostEnvironment environment;
  environment.profile.wire_rate = 1e9;
  EXPECT_EQ(environment.window_bytes(0.9e-3), 0u) << "near";
  EXPECT_EQ(environment.window_bytes(20e-3), 3'125'000u) << "until a rate is known";
  environment.rate_is_given = true;
  EXPECT_EQ(environment.window_bytes(20e-3), 25'000'000u);
  EXPECT_EQ(environment.window_bytes(1), plan::kMostWindowBytes);
  environment.most_window_bytes = 2'000'000;
  EXPECT_EQ(environment.window_bytes(20e-3), 2'000'000u);
  environment.paced_rate = 1e6;
  EXPECT_EQ(environment.window_bytes(20e-3), 64u << 10) << "the least";
  const plan::MachineModel links = environment.links("none", {.round_trip = 20e-3});
  EXPECT_EQ(links.wire.latency, 10e-3);
  EXPECT_EQ(links.window_bytes, 64u << 10);
  EXPECT_EQ(environment.links("none").window_bytes, 0u);
}

TEST(CostEnvironment, is_read_back_as_it_was_written) {
  CostEnvironment written = slow_wire();
  written.tcp_inside = true;
  written.paced_rate = 12.5e6;
  written.shared_cores = 2;
  written.one_machine = true;
  written.most_window_bytes = 3'000'000;
  written.sites = "0-1,2-3";
  auto back = parse_cost_environment(to_text(written));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(to_text(*back), to_text(written));
  EXPECT_TRUE(back->tcp_inside);
  EXPECT_EQ(back->shared_cores, 2);
  EXPECT_EQ(back->most_window_bytes, 3'000'000u);
  EXPECT_EQ(back->sites, "0-1,2-3");
  EXPECT_TRUE(back->one_machine);
  EXPECT_EQ(back->links("none").wire_rate, 12.5e6);
}

TEST(CostEnvironment, is_a_line_for_each_field_before_the_profile) {
  CostEnvironment written;
  written.tcp_inside = written.rate_is_given = true;
  written.paced_rate = 12.5;
  written.slice_bytes = 4096;
  written.device_slice_bytes = 8192;
  written.most_window_bytes = 5;
  written.shared_cores = 2;
  written.sites = "0-1,2-3";
  EXPECT_EQ(to_text(written),
            "inside tcp\npaced 12.5\nrate given\nslice 4096\ndevice slice 8192\nwindow 5\ncores 2\n"
            "machines several\nsites 0-1,2-3\n" +
                plan::to_text(written.profile));
}

TEST(CostEnvironment, damaged_text_is_refused) {
  const std::string text = to_text(CostEnvironment());
  for (const std::string& bad :
       {std::string(), text.substr(1), "inside udp" + text.substr(10), text + "speed 1\n",
        std::string("inside shm\npaced -1\n"), std::string("inside shm\npaced nan\n"),
        std::string("inside shm\npaced 0\nslice 1\ncores -1\nmachines one\n"), std::string("inside shm\npaced")}) {
    EXPECT_FALSE(parse_cost_environment(bad).ok()) << bad;
  }
}

class ProfileFile : public ::testing::Test {
 protected:
  ~ProfileFile() override { std::filesystem::remove(path_); }
  Result<CostEnvironment> read() const {
    Options options;
    options.profile = path_.string();
    return cost_environment_of(options);
  }
  void expect_error(const std::string& text) const {
    auto environment = read();
    ASSERT_FALSE(environment.ok());
    EXPECT_NE(environment.error().message.find(text), std::string::npos) << environment.error().message;
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("qccl-profile-" + std::to_string(::getpid()));
};

TEST_F(ProfileFile, is_read) {
  std::ofstream(path_) << "wire.host_Gbps 0.5\n";
  auto environment = read();
  ASSERT_TRUE(environment.ok()) << environment.error().message;
  EXPECT_NEAR(environment->profile.wire_rate, 62.5e6, 1);
}

TEST_F(ProfileFile, missing_wrong_or_too_long_is_an_error_that_names_it) {
  expect_error("QCCL_PROFILE=" + path_.string() + ": can't be read");
  std::ofstream(path_) << "wire.host_Gbps much\n";
  expect_error("line 1 of the profile is not understood");
  std::ofstream many(path_);
  for (int i = 0; i < 500; ++i) many << "codec_GBps codec" << i << " 1 1\n";
  many.close();
  expect_error("more lines than a profile can have");
}

// Four distant hosts, of which one has a slow line.
class UnequalLines : public ::testing::Test {
 protected:
  UnequalLines() {
    table_.use_lines({.rate = 1e7, .shares_rate = 7.5e7, .window_rate = 1e8});
    defaults_.shares = {133, 133, 0, 133};
    defaults_.hosts = {0, 1, 2, 3};
    defaults_.window_bytes = table_.window_bytes();
    defaults_.algorithms = &table_;
  }
  std::vector<int> shares_of(Collective collective, const CallOptions& options, std::size_t count = 1 << 24) const {
    const CollectiveCall call{collective, nullptr, nullptr, count, DataType::float32, options};
    const auto resolved = resolve(call, 4, defaults_).take_or_throw();
    return {resolved.shares.begin(), resolved.shares.end()};
  }

  AlgorithmTable table_{{}, kFourHosts, {.round_trip = 0.01}};
  GroupDefaults defaults_;
};

TEST_F(UnequalLines, give_their_owners_shares_in_the_plans_that_use_them_only) {
  const std::vector<int> shares{133, 133, 0, 133};
  EXPECT_EQ(shares_of(Collective::all_reduce, {.algorithm = Algorithm::sra}), shares);
  EXPECT_EQ(shares_of(Collective::all_reduce, {}), shares) << "sra is chosen";
  EXPECT_EQ(shares_of(Collective::all_reduce, {.compression = minmax({.bits = 4})}), shares);
  for (const Algorithm other : {Algorithm::one_shot, Algorithm::ring, Algorithm::hierarchical}) {
    EXPECT_EQ(shares_of(Collective::all_reduce, {.algorithm = other}), std::vector<int>());
  }
  EXPECT_EQ(shares_of(Collective::reduce, {.algorithm = Algorithm::sra}), std::vector<int>());
  EXPECT_EQ(shares_of(Collective::broadcast, {.algorithm = Algorithm::sra}), std::vector<int>());
  EXPECT_EQ(shares_of(Collective::reduce_scatter, {}, 1 << 22), std::vector<int>());
}

// An owner's own input is not encoded.
TEST_F(UnequalLines, leave_the_bits_of_a_compressed_sum_alone_that_names_its_algorithm) {
  EXPECT_EQ(shares_of(Collective::all_reduce, {.compression = minmax({.bits = 4}), .algorithm = Algorithm::sra}),
            std::vector<int>());
}

// The slow one's window would hold the fast hosts up, so that nobody could see how fast they are.
TEST_F(UnequalLines, have_the_window_of_the_fast_ones_and_the_price_of_the_rate_that_shares_are_worth) {
  AlgorithmTable far({}, kFourHosts, {.round_trip = 0.1});
  far.use_lines({.rate = 1e7, .shares_rate = 7.5e7, .window_rate = 1e8});
  EXPECT_NEAR(static_cast<double>(far.window_bytes()), 1e8 / plan::kTcpEfficiency * 0.105, 1e3);
  const double with_shares = far.predict(sum_of(1 << 24), Algorithm::sra);
  const double ring = far.predict(sum_of(1 << 24), Algorithm::ring);
  far.use_lines({.rate = 1e7});
  EXPECT_GT(far.predict(sum_of(1 << 24), Algorithm::sra), 5 * with_shares);
  EXPECT_NEAR(far.predict(sum_of(1 << 24), Algorithm::ring), ring, 0.1 * ring);
}

TEST(AlgorithmTable, has_longer_windows_between_hosts_whose_lines_lose_packets) {
  AlgorithmTable table({}, kFourHosts, {.round_trip = 0.02});
  table.use_lines({.rate = 1e7});
  EXPECT_NEAR(static_cast<double>(table.window_bytes()), 1e7 / plan::kTcpEfficiency * 0.025, 1e3);
  table.use_lines({.rate = 1e7, .loses = true});
  EXPECT_EQ(table.window_bytes(), std::uint64_t{4} << 20);
  table.use_lines({.rate = 1e9, .loses = true});
  EXPECT_NEAR(static_cast<double>(table.window_bytes()), 1e9 / plan::kTcpEfficiency * 0.025, 1e3);
}

TEST(Resolve, an_exchange_with_counts_ignores_what_only_one_rank_knows) {
  AlgorithmTable table(slow_wire(), {0, 1});
  GroupDefaults defaults;
  defaults.algorithms = &table;
  for (const std::uint64_t own : {std::uint64_t{1}, std::uint64_t{1} << 24}) {
    const std::vector<std::size_t> counts{own, 1};
    const auto call =
        resolve({.collective = Collective::all_to_all, .type = DataType::float32, .counts = counts, .receives = counts},
                2, defaults);
    ASSERT_TRUE(call.ok());
    EXPECT_EQ(call.value().algorithm, Algorithm::one_shot);
  }
}

TEST(ExplainAlgorithm, tells_a_request_from_a_prediction) {
  AlgorithmTable table(slow_wire(), kTwoHosts);
  GroupDefaults defaults;
  defaults.algorithms = &table;
  const auto explained = [&](const CallOptions& options) {
    const auto call =
        resolve({Collective::all_reduce, nullptr, nullptr, 1 << 24, DataType::float32, options}, 8, defaults);
    return explain_algorithm(call.value(), 8, options, defaults);
  };
  EXPECT_EQ(explained({.algorithm = Algorithm::ring}), "ring: asked for");
  const std::string text = explained({});
  EXPECT_NE(text.find("hierarchical, "), std::string::npos) << text;
  EXPECT_NE(text.find("% of the time of sra (one_shot "), std::string::npos) << text;
}

CollectiveCall all_reduce(std::size_t count, const CallOptions& options) {
  return {Collective::all_reduce, nullptr, nullptr, count, DataType::float32, options};
}

PlanCache::Plan plan_of(const CollectiveCall& call) {
  const auto resolved = resolve(call, 2, {}).take_or_throw();
  return std::make_shared<const engine::ExecutablePlan>(resolved, 2, GroupRank(0),
                                                        make_codec(resolved.compression).take_or_throw());
}

TEST(PlanCache, finds_a_call_that_was_made_before_and_no_other) {
  const CallOptions plain, ring{.algorithm = Algorithm::ring}, packed{.compression = minmax({.bits = 4})};
  const std::vector<CollectiveCall> calls = {all_reduce(1000, plain), all_reduce(1001, plain), all_reduce(1000, ring),
                                             all_reduce(1000, packed)};
  PlanCache cache;
  std::vector<PlanCache::Plan> plans;
  for (const CollectiveCall& call : calls) {
    EXPECT_EQ(cache.find(call, {}), nullptr);
    plans.push_back(plan_of(call));
    cache.add(call, {}, plans.back());
  }
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(cache.find(calls[i], {}), plans[i]) << i;
  }
}

TEST(PlanCache, distinguishes_offsets_in_mapped_regions) {
  const CallOptions options;
  const CollectiveCall call = all_reduce(1000, options);
  PlanCache cache;
  cache.add(call, {.region = 1, .bytes = 64}, plan_of(call));
  EXPECT_NE(cache.find(call, {.region = 1, .bytes = 64}), nullptr);
  EXPECT_EQ(cache.find(call, {.region = 1, .bytes = 128}), nullptr);
  EXPECT_EQ(cache.find(call, {.region = 2, .bytes = 64}), nullptr);
  EXPECT_EQ(cache.find(call, {}), nullptr);
}

TEST(PlanCache, finds_a_call_with_counts_by_its_resolved_form) {
  std::vector<std::size_t> counts{3, 4};
  const CollectiveCall call{.collective = Collective::all_gather, .type = DataType::float32, .counts = counts};
  PlanCache cache;
  const auto plan = plan_of(call);
  EXPECT_FALSE(PlanCache::has_signature(call));
  cache.add(plan);
  EXPECT_EQ(cache.find(call, {}), nullptr);
  EXPECT_EQ(cache.find(resolve(call, 2, {}).take_or_throw()), plan);
  counts[1] = 5;
  EXPECT_EQ(cache.find(resolve(call, 2, {}).take_or_throw()), nullptr);
}

TEST(PlanCache, shares_a_codec_between_plans) {
  const CallOptions packed{.compression = minmax({.bits = 4})};
  PlanCache cache;
  EXPECT_EQ(cache.find_codec(*packed.compression), nullptr);
  const auto plan = plan_of(all_reduce(1000, packed));
  cache.add(plan);
  EXPECT_EQ(cache.find_codec(*packed.compression), plan->shared_codec());
}

TEST(PlanCache, forgets_the_oldest_plan_once_it_is_full) {
  const CallOptions options;
  PlanCache cache;
  for (std::size_t count = 1; count <= 129; ++count) {
    const CollectiveCall call = all_reduce(count, options);
    cache.add(call, {}, plan_of(call));
  }
  EXPECT_EQ(cache.find(all_reduce(1, options), {}), nullptr);
  for (std::size_t count = 2; count <= 129; ++count) EXPECT_NE(cache.find(all_reduce(count, options), {}), nullptr);
  cache.clear();
  EXPECT_EQ(cache.find(all_reduce(129, options), {}), nullptr);
}

TEST(Price, counts_the_header_of_a_frame) { EXPECT_EQ(plan::Encoding{}.frame_bytes, wire::kHeaderBytes); }

}  // namespace
}  // namespace qccl::comm
