// Distant hosts: a call takes about as long as its bytes take on the wire and the latencies that its plan needs, and
// holds no more than a window.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "codec/codec.h"
#include "codec/geometry.h"
#include "plan/cost/cost.h"
#include "sim/simulation.h"

namespace qccl::sim {
namespace {

constexpr double kGbit = 125e6;
constexpr std::chrono::microseconds kNear{100};
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct Distance {
  int hosts = 2;
  double rate = kGbit;  // bytes per second
  std::chrono::milliseconds latency{50};
  int sites = 1;         // of equally many hosts, 100 us apart inside
  double site_rate = 0;  // of a site's line; 0: no limit

  plan::Layout places() const {
    plan::Layout layout;
    for (int host = 0; host < hosts; ++host) layout.hosts.push_back(host);
    for (int host = 0; host < hosts && sites > 1; ++host) layout.sites.push_back(host * sites / hosts);
    return layout;
  }
  double latency_seconds() const { return std::chrono::duration<double>(latency).count(); }
};

plan::MachineModel machine(const Distance& distance) {
  plan::MachineModel model;
  model.wire_rate = distance.rate;
  model.wire = {distance.latency_seconds(), 0, 0};
  model.near_latency = std::chrono::duration<double>(kNear).count();
  model.site_rate = distance.site_rate;
  model.window_bytes = plan::window_of(distance.rate, 2 * distance.latency_seconds(), plan::kMostWindowBytes);
  return model;
}

engine::ResolvedCall all_reduce(const Distance& distance, std::uint64_t bytes, const Compression& compression) {
  engine::ResolvedCall call;
  call.collective = Collective::all_reduce;
  call.count = bytes / sizeof(float);
  call.type = DataType::float32;
  call.compression = compression;
  const auto codec = make_codec(compression).take_or_throw();
  plan::SelectionKey key{.elements = call.count,
                         .compressed = codec != nullptr,
                         .slice_elements = slice_elements(codec.get(), call.type, kDefaultSliceBytes)};
  if (codec != nullptr) {
    key.bucket_size = codec->bucket_size();
    key.encoded_bytes = expected_element_bytes(codec.get(), call.type, key.slice_elements);
  }
  call.algorithm = plan::choose(key, distance.places(), machine(distance));
  if (call.algorithm == Algorithm::hierarchical) {
    const std::vector<int> groups = plan::hierarchy_of(key, distance.places(), machine(distance));
    call.hosts.assign(groups.begin(), groups.end());
  }
  return call;
}

SimulationResult run(const Distance& distance, const engine::ResolvedCall& call) {
  SimulationOptions options;
  options.ranks = distance.hosts;
  options.links.bytes_per_second = options.links.ingress_bytes_per_second = distance.rate;
  options.links.latency = distance.latency;
  options.links.slots = SIZE_MAX / 2;
  options.links.sites = distance.places().sites;
  options.links.near_latency = kNear;
  if (distance.site_rate > 0) {
    options.links.hosts_per_rack = distance.hosts / distance.sites;  // a site's line is a rack's uplink
    options.links.rack_bytes_per_second = distance.site_rate;
  }
  options.window_bytes = machine(distance).window_bytes;
  return simulate(options, call).take_or_throw();
}

double seconds_of(const SimulationResult& result) { return std::chrono::duration<double>(result.time).count(); }

// What scatter-reduce and all-gather put on a link.
double least_wire_seconds(const Distance& distance, std::uint64_t bytes, double bits) {
  return 2.0 * (distance.hosts - 1) / distance.hosts * static_cast<double>(bytes) * bits / 32 / distance.rate;
}

struct Codec {
  const char* text;
  double bits;  // an element, with headers
};
constexpr Codec kCodecs[] = {{"none", 32}, {"minmax:bits=8", 8.0625}, {"minmax:bits=4", 4.0625}};

TEST(Distance, large_sums_take_their_bytes_and_three_latencies_at_most_a_quarter_more) {
  for (const int hosts : {2, 4}) {
    for (const std::uint64_t bytes : {16 * kMiB, 64 * kMiB}) {
      for (const int latency : {1, 10, 50, 100}) {
        for (const Codec& codec : kCodecs) {
          const Distance distance{.hosts = hosts, .latency = std::chrono::milliseconds(latency)};
          const auto call = all_reduce(distance, bytes, Compression::parse(codec.text));
          const SimulationResult result = run(distance, call);
          const double least = least_wire_seconds(distance, bytes, codec.bits) + 3 * distance.latency_seconds();
          SCOPED_TRACE(fmt::format("{} hosts, {} ms, {}", hosts, latency, call.describe()));
          EXPECT_LE(seconds_of(result), 1.25 * least);
          if (hosts == 2 || latency <= 50) EXPECT_LE(result.held_bytes, 5'500'000u);
          EXPECT_LE(result.held_bytes, machine(distance).window_bytes / 2 + kMiB);
        }
      }
    }
  }
}

TEST(Distance, one_mebibyte_takes_its_bytes_and_little_more_than_two_latencies) {
  for (const int hosts : {2, 4, 8}) {
    for (const Codec& codec : kCodecs) {
      const Distance distance{.hosts = hosts};
      const auto call = all_reduce(distance, kMiB, Compression::parse(codec.text));
      SCOPED_TRACE(fmt::format("{} hosts, {}", hosts, call.describe()));
      const double wire = least_wire_seconds(distance, kMiB, codec.bits);
      EXPECT_LE(seconds_of(run(distance, call)), wire + 2.2 * distance.latency_seconds());
    }
  }
}

TEST(Distance, small_sums_take_one_latency) {
  for (const std::uint64_t bytes : {4, 1024, 65536}) {
    const Distance distance{.hosts = 8};
    EXPECT_LE(seconds_of(run(distance, all_reduce(distance, bytes, none()))), 1.12 * distance.latency_seconds());
  }
}

TEST(Distance, compressed_sums_fill_a_fast_link_and_hold_little) {
  for (const int hosts : {2, 4}) {
    const Distance distance{.hosts = hosts, .rate = 10 * kGbit};
    const SimulationResult result = run(distance, all_reduce(distance, 64 * kMiB, minmax({.bits = 4})));
    EXPECT_LE(seconds_of(result), 0.180);
    EXPECT_LE(result.held_bytes, 8'000'000u);
  }
}

TEST(Distance, sums_in_one_step_move_all_slices_of_a_window_at_once) {
  const Distance distance;
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::recursive_doubling}) {
    engine::ResolvedCall call = all_reduce(distance, 64 * kMiB, none());
    call.algorithm = algorithm;
    EXPECT_LE(seconds_of(run(distance, call)), 0.75) << to_string(algorithm);
  }
}

const Distance kTwoSites{.hosts = 8, .sites = 2};

TEST(Sites, one_mebibyte_crosses_once_and_is_added_by_neighbours_first) {
  const auto call = all_reduce(kTwoSites, kMiB, none());
  EXPECT_EQ(call.algorithm, Algorithm::recursive_doubling);
  const double wire = 3.0 * kMiB / kTwoSites.rate;
  EXPECT_LE(seconds_of(run(kTwoSites, call)), wire + 1.1 * kTwoSites.latency_seconds());
  const Distance unaware{.hosts = 8};
  EXPECT_GE(seconds_of(run(kTwoSites, all_reduce(unaware, kMiB, none()))), 1.4 * seconds_of(run(kTwoSites, call)));
}

// Each site sends and receives every element once.
TEST(Sites, a_shared_line_carries_each_element_once_each_way) {
  Distance distance = kTwoSites;
  distance.rate = 10 * kGbit;
  distance.site_rate = kGbit;
  for (const std::uint64_t bytes : {16 * kMiB, 64 * kMiB}) {
    const auto call = all_reduce(distance, bytes, none());
    EXPECT_EQ(call.algorithm, Algorithm::hierarchical);
    EXPECT_EQ(std::vector<int>(call.hosts.begin(), call.hosts.end()), distance.places().sites);
    const double line = static_cast<double>(bytes) / distance.site_rate;
    EXPECT_LE(seconds_of(run(distance, call)), 1.1 * line + 2.2 * distance.latency_seconds());
    Distance unaware = distance;
    unaware.sites = 1;
    unaware.site_rate = 0;
    EXPECT_GE(seconds_of(run(distance, all_reduce(unaware, bytes, none()))), 3 * line);
  }
}

// A window of 1 MiB a round trip is all that moves, and all that is held.
TEST(Distance, a_small_window_bounds_what_is_held) {
  const Distance distance{.rate = 10 * kGbit};
  SimulationOptions options;
  options.ranks = 2;
  options.links.bytes_per_second = options.links.ingress_bytes_per_second = distance.rate;
  options.links.latency = distance.latency;
  options.links.slots = SIZE_MAX / 2;
  options.window_bytes = kMiB;
  const SimulationResult result = simulate(options, all_reduce(distance, 64 * kMiB, none())).take_or_throw();
  EXPECT_GT(seconds_of(result), 20 * distance.latency_seconds());
  EXPECT_LE(result.held_bytes, 5 * kMiB);
}

}  // namespace
}  // namespace qccl::sim
