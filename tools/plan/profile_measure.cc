#include "tools/plan/profile_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "codec/codec.h"
#include "codec/geometry.h"
#include "codec/registry.h"
#include "plan/cost/cost.h"
#include "plan/plan.h"
#include "tools/command_line.h"

namespace qccl::tools {
namespace {

constexpr std::size_t kSliceBytes = 128 * 1024;  // the library works on one slice at a time
constexpr std::size_t kSliceFloats = kSliceBytes / sizeof(float);
constexpr std::size_t kLargeFloats = 8 << 20;  // 32 MiB: from and to memory, not caches
constexpr int kSamples = 15;
constexpr int kSmallCalls = 200;
constexpr int kCallsInFlight = 32;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The median of several runs, in seconds, after a warm-up run.
double median_seconds(const std::function<void()>& body) {
  body();
  std::vector<double> seconds;
  for (int i = 0; i < kSamples; ++i) {
    const double begin = now();
    body();
    seconds.push_back(now() - begin);
  }
  return median(std::move(seconds));
}

// ---- processors

std::vector<float> values() {
  std::vector<float> all(kLargeFloats);
  std::uint32_t state = 1;
  for (float& value : all) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
  }
  return all;
}

// Calls `body` with the beginning of each slice.
template <class Body>
double seconds_over_slices(const Body& body) {
  return median_seconds([&] {
    for (std::size_t at = 0; at < kLargeFloats; at += kSliceFloats) body(at);
  });
}

constexpr double kLargeBytes = kLargeFloats * sizeof(float);

// Copies slices from a link's memory, which is in cache, to the caller's.
double measure_copy(std::vector<float>& large) {
  const std::vector<float> slice(kSliceFloats, 1.0f);
  return kLargeBytes / seconds_over_slices([&](std::size_t at) { std::memcpy(&large[at], slice.data(), kSliceBytes); });
}

double measure_add(std::vector<float>& large) {
  const std::vector<float> slice(kSliceFloats, 0.0f);
  return kLargeBytes / seconds_over_slices([&](std::size_t at) {
           float* target = &large[at];
           for (std::size_t i = 0; i < kSliceFloats; ++i) target[i] += slice[i];
         });
}

plan::CodecSpeed measure_codec(const Compression& compression, const std::string& name,
                               const std::vector<float>& large) {
  const auto codec = make_codec(compression).take_or_throw();
  const std::uint64_t elements = slice_elements(codec.get(), DataType::float32, kSliceBytes);
  std::vector<std::byte> encoded(codec->max_encoded_bytes(elements));
  std::vector<float> sum(elements);
  std::size_t bytes = 0;
  const std::size_t slices = kLargeFloats / elements;
  const auto bytes_per_run = static_cast<double>(slices * elements * sizeof(float));
  const double encode = median_seconds([&] {
    for (std::size_t i = 0; i < slices; ++i) {
      bytes = codec->encode({&large[i * elements], elements}, encoded, RandomStream{.first_element = i * elements});
    }
  });
  const double decode = median_seconds([&] {
    for (std::size_t i = 0; i < slices; ++i) codec->decode_add({encoded.data(), bytes}, sum, sum).take_or_throw();
  });
  return {name, bytes_per_run / encode, bytes_per_run / decode};
}

// Measures each codec with its defaults, and with 4 and 8 bits if it has that setting.
std::vector<plan::CodecSpeed> measure_codecs(const std::vector<float>& large) {
  std::vector<plan::CodecSpeed> speeds;
  for (const CodecEntry* entry : codec_list()) {
    const std::string name(entry->name);
    for (const std::string& spec : {name, name + ":bits=4", name + ":bits=8"}) {
      const auto compression = parse_compression(spec);
      if (compression.ok() && make_codec(compression.value()).take_or_throw() != nullptr) {
        speeds.push_back(measure_codec(compression.value(), spec, large));
      }
    }
  }
  return speeds;
}

// ---- links

// The times of a pair of ranks on a link, measured by rank 0.
struct PairTimes {
  double alone = 0;      // a call of 8 bytes
  double in_flight = 0;  // the same, one of many at once
  double large = 0;      // 32 MiB
};

PairTimes time_pair(Communicator& pair) {
  const CallOptions one_shot{.compression = none(), .algorithm = Algorithm::one_shot};
  const CallOptions sra{.compression = none(), .algorithm = Algorithm::sra};
  std::vector<double> small(kCallsInFlight);
  std::vector<float> large(kLargeFloats, 1.0f);
  PairTimes times;
  times.alone = median_seconds([&] {
                  for (int i = 0; i < kSmallCalls; ++i)
                    pair.all_reduce(small.data(), small.data(), 1, DataType::float64, one_shot);
                }) /
                kSmallCalls;
  times.in_flight = median_seconds([&] {
                      std::vector<Work> works;
                      for (double& value : small) {
                        works.push_back(pair.all_reduce_async(&value, &value, 1, DataType::float64, one_shot));
                      }
                      for (const Work& work : works) work.wait();
                    }) /
                    kCallsInFlight;
  times.large =
      median_seconds([&] { pair.all_reduce(large.data(), large.data(), large.size(), DataType::float32, sra); });
  return times;
}

// A call in flight costs each rank at most one sent and one received frame.
plan::LinkCost link_of(const PairTimes& times, const plan::Profile& profile) {
  plan::LinkCost link;
  link.frame_seconds = times.in_flight / 2;
  link.latency = times.alone;
  // The same call in the cost model, without the time for moving bytes.
  const plan::Request request{.collective = Collective::all_reduce,
                              .algorithm = Algorithm::sra,
                              .world = 2,
                              .count = kLargeFloats,
                              .slice_elements = kSliceFloats};
  const plan::MachineModel links{.wire_rate = 0,
                                 .wire = {link.latency, link.frame_seconds, 0},
                                 .copy_rate = profile.copy_rate,
                                 .add_rate = profile.add_rate};
  const plan::CostEstimate rest = plan::price(request, {}, links, {});
  const double moved = 2 * (rest.mean_sent_bytes);
  link.rank_rate = moved / std::max(times.large - rest.seconds, times.large / 10);
  return link;
}

// Two threads of this process as the two ranks.
PairTimes time_threads(TransportChoice transport) {
  const StoreServer server;
  PairTimes times[2];
  std::exception_ptr failures[2];
  const auto act = [&](int rank) {
    try {
      Communicator pair = init({.rank = rank,
                                .world = 2,
                                .store = connect_store(server.address()),
                                .init_timeout = Milliseconds(20'000),
                                .transport = transport,
                                .compression = none()});
      times[rank] = time_pair(pair);
      pair.close();
    } catch (...) {
      failures[rank] = std::current_exception();
    }
  };
  std::thread other(act, 1);
  act(0);
  other.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return times[0];
}

}  // namespace

plan::Profile measure_machine() {
  plan::Profile profile;
  std::vector<float> large = values();
  profile.machine = fmt::format("{}, {} cores", processor_name(), std::thread::hardware_concurrency());
  profile.codecs = measure_codecs(large);
  profile.copy_rate = measure_copy(large);
  profile.add_rate = measure_add(large);
  profile.shm = link_of(time_threads(TransportChoice::shm), profile);
  profile.loopback = link_of(time_threads(TransportChoice::tcp), profile);
  profile.wire = profile.loopback;
  profile.wire_rate = plan::default_profile().wire_rate;
  profile.wire.latency = plan::default_profile().wire.latency;
  return profile;
}

void measure_wire(Communicator& world, plan::Profile& profile) {
  const std::vector<int> hosts = world.hosts();
  const auto far = std::find_if(hosts.begin(), hosts.end(), [&](int host) { return host != hosts.front(); });
  if (far == hosts.end()) return;
  const int peer = static_cast<int>(far - hosts.begin());
  world.barrier();  // rank 0 arrives late, and making a group does not wait that long
  if (world.rank() == 0 || world.rank() == peer) {
    Communicator pair = world.subgroup({0, peer}, "profile");
    const PairTimes times = time_pair(pair);
    profile.wire.latency = times.alone;
    // An SRA of two ranks sends every byte once.
    profile.wire_rate = kLargeBytes / times.large / plan::kTcpEfficiency;
    pair.close();
  }
  world.barrier();
}

}  // namespace qccl::tools
