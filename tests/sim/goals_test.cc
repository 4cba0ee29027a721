// The goals on lines whose queues hold half of what a line holds in a round trip: an all_reduce, by the algorithm that
// the library chooses, takes at most 1.15 times what the lines' rates allow. Where it does not yet, the tables have
// what it takes and 5 %: an entry may become smaller, never larger.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "plan/algorithms/registry.h"
#include "plan/cost/shares.h"
#include "plan/plan.h"
#include "sim/simulation.h"

namespace qccl::sim {
namespace {

using std::chrono::milliseconds;

constexpr double kMbit = 125e3;  // bytes a second
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr double kGoal = 1.15;          // times the bound
constexpr int kCalls = 12, kTimed = 7;  // windows need some calls; the median of the last ones counts

struct Line {
  double rate;  // bytes a second
  milliseconds latency;
  double seconds() const { return std::chrono::duration<double>(latency).count(); }
  // Half of what the line holds in a round trip, at least 64 KiB.
  std::uint64_t queue_bytes() const {
    return std::max<std::uint64_t>(64 << 10, static_cast<std::uint64_t>(rate * seconds()));
  }
};

struct Job {
  Line line;
  int hosts;
  std::uint64_t bytes;
  int bits;        // 32: no compression
  int slower = 1;  // the last host's line has this part of the rate

  Compression compression() const { return Compression::parse(bits == 32 ? "none" : fmt::format("int:bits={}", bits)); }
  std::string name() const {
    const std::string slow = slower == 1 ? "" : fmt::format(", one at 1/{} of the rate", slower);
    return fmt::format("{} hosts, {} Mbit/s, {} ms, {} MiB, {} bits{}", hosts, line.rate / kMbit, line.latency.count(),
                       bytes / kMiB, bits, slow);
  }
  std::vector<double> rates() const {
    std::vector<double> rates(static_cast<std::size_t>(hosts), line.rate);
    rates.back() /= slower;
    return rates;
  }
};

// The job as the library sees it once it knows the lines.
class Known {
 public:
  explicit Known(const Job& job) : job_(job), codec_(make_codec(job.compression()).take_or_throw()) {
    links_ = plan::links_of(plan::default_profile(), job.compression().to_string());
    links_.wire.latency = job.line.seconds();
    std::vector<int> hosts(static_cast<std::size_t>(job.hosts));
    std::iota(hosts.begin(), hosts.end(), 0);
    layout_ = {hosts, {}};
    const plan::HostLines lines{hosts, job.rates()};
    links_.wire_rate = std::ranges::min(lines.rates);
    shares_ = plan::shares_of(lines, {});
    if (!shares_.empty()) links_.shares_rate = plan::equivalent_rate(lines, shares_);
    const double rate = std::max(links_.wire_rate, links_.shares_rate);
    links_.window_bytes = plan::window_of(rate, 2 * job.line.seconds(), plan::kMostWindowBytes);
  }

  engine::ResolvedCall call() const {
    engine::ResolvedCall call;
    call.collective = Collective::all_reduce;
    call.count = job_.bytes / sizeof(float);
    call.type = DataType::float32;
    call.compression = job_.compression();
    call.algorithm = plan::choose(key(), layout_, links_);
    if (plan::uses_shares(call.collective, call.algorithm)) call.shares.assign(shares_.begin(), shares_.end());
    return call;
  }

  SimulationOptions options() const {
    SimulationOptions options;
    options.ranks = job_.hosts;
    options.processors = links_;
    options.window_bytes = links_.window_bytes;
    options.warm_up_calls = kCalls - 1;
    NetworkOptions& links = options.links;
    links.bytes_per_second = links.ingress_bytes_per_second = job_.line.rate;
    if (job_.slower > 1) links.slow_hosts = {{job_.hosts - 1, job_.rates().back()}};
    links.latency = job_.line.latency;
    links.slots = SIZE_MAX / 2;
    links.up_queue_bytes = links.down_queue_bytes = job_.line.queue_bytes();
    return options;
  }

  // What the best shares of a scatter-reduce and all-gather take on the lines, and three latencies.
  double bound() const {
    const double encoded = static_cast<double>(job_.bytes) * encoded_bytes() / sizeof(float);
    const std::vector<double> rates = job_.rates();
    double low = 0, high = 2 * encoded / std::ranges::min(rates);
    for (int i = 0; i < 60; ++i) {
      const double time = (low + high) / 2;
      double sum = 0, least = 0;
      for (const double rate : rates) {
        const double owned = job_.hosts == 2 ? 0.5 : (time * rate / encoded - 1) / (job_.hosts - 2);
        sum += owned;
        least = std::min({least, owned, time * rate / encoded - 1});
      }
      (least >= 0 && sum >= 1 ? high : low) = time;
    }
    return high + 3 * job_.line.seconds();
  }

 private:
  std::uint64_t slice_elements() const {
    return qccl::slice_elements(codec_.get(), DataType::float32, kDefaultSliceBytes,
                                plan::most_slice_bytes(links_.window_bytes, job_.hosts));
  }
  double encoded_bytes() const {
    return codec_ == nullptr ? sizeof(float)
                             : expected_element_bytes(codec_.get(), DataType::float32, slice_elements());
  }
  plan::SelectionKey key() const {
    plan::SelectionKey key{.collective = Collective::all_reduce,
                           .elements = job_.bytes / sizeof(float),
                           .slice_elements = slice_elements()};
    if (codec_ == nullptr) return key;
    key.compressed = true;
    key.bucket_size = codec_->bucket_size();
    key.encoded_bytes = encoded_bytes();
    return key;
  }

  const Job job_;
  const std::shared_ptr<const Codec> codec_;
  plan::MachineModel links_;
  plan::Layout layout_;
  std::vector<int> shares_;
};

// The time as a multiple of the bound.
double multiple(const Job& job) {
  const Known known(job);
  const SimulationResult result = simulate(known.options(), known.call()).take_or_throw();
  EXPECT_EQ(result.failed_ranks, 0);
  std::vector<Nanoseconds> times = result.warm_up_times;
  times.push_back(result.time);
  times.erase(times.begin(), times.end() - kTimed);
  std::ranges::sort(times);
  return std::chrono::duration<double>(times[kTimed / 2]).count() / known.bound();
}

void expect_at_most(double most, const Job& job) {
  const double found = multiple(job);
  EXPECT_LE(found, most) << job.name();
  EXPECT_GE(found, 0.7) << job.name() << ": faster than lines are";
}

constexpr Line kFar{50 * kMbit, milliseconds(40)};
constexpr Line kMiddle{200 * kMbit, milliseconds(10)};
constexpr Line kNear{100 * kMbit, milliseconds(1)};

TEST(Goals, of_equal_lines_are_kept) {
  constexpr int kHosts[] = {2, 3, 4, 8, 16};
  struct Row {
    Line line;
    int mib;
    int bits;
    std::vector<double> most;  // for each number of hosts; some would take too long here
  };
  const Row rows[] = {
      {kFar, 4, 32, {1.58, 2.24, 2.32, 1.96, 1.86}},    {kFar, 4, 8, {1.24, 1.41, 2.25, 2.30, 2.16}},
      {kFar, 4, 4, {kGoal, kGoal, 1.37, 1.65, 2.97}},   {kFar, 16, 32, {1.71, 1.84, 1.91}},
      {kFar, 16, 8, {1.71, 1.83, 2.31, 1.87}},          {kFar, 16, 4, {1.62, 1.87, 2.25, 2.26}},
      {kMiddle, 4, 32, {1.61, 2.54, 2.48, 1.73, 1.67}}, {kMiddle, 4, 8, {1.26, 1.88, 2.12, 2.03, 2.26}},
      {kMiddle, 4, 4, {kGoal, 1.43, 1.46, 1.57, 5.24}}, {kMiddle, 16, 32, {1.74, 1.86, 1.57}},
      {kMiddle, 16, 8, {1.77, 2.61, 2.37, 1.74}},       {kMiddle, 16, 4, {1.49, 2.04, 2.43, 2.12}},
      {kNear, 4, 32, {1.24, kGoal, 1.22, 1.52, 1.52}},  {kNear, 4, 8, {1.45, 1.25, 1.26, 1.33, 2.75}},
      {kNear, 4, 4, {1.45, 1.35, 1.32, 1.53, 3.98}},    {kNear, 16, 32, {kGoal, kGoal, 1.22}},
      {kNear, 16, 8, {1.32, kGoal, 1.22, 1.27}},        {kNear, 16, 4, {1.34, kGoal, 1.25, 1.31}},
  };
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.most.size(); ++i) {
      expect_at_most(row.most[i], {row.line, kHosts[i], static_cast<std::uint64_t>(row.mib) * kMiB, row.bits});
    }
  }
}

TEST(Goals, of_a_slow_host_are_kept_by_owners_shares) {
  constexpr int kSlower[] = {2, 4, 10};
  struct Row {
    Line line;
    int bits;
    int hosts;
    std::array<double, std::size(kSlower)> most;
  };
  const Row rows[] = {
      {kFar, 32, 4, {1.28, kGoal, kGoal}},    {kFar, 32, 8, {1.40, kGoal, kGoal}},
      {kFar, 4, 4, {1.28, kGoal, kGoal}},     {kFar, 4, 8, {1.30, kGoal, kGoal}},
      {kMiddle, 32, 4, {1.37, kGoal, kGoal}}, {kMiddle, 32, 8, {1.59, kGoal, kGoal}},
      {kMiddle, 4, 4, {1.29, kGoal, kGoal}},  {kMiddle, 4, 8, {1.48, kGoal, kGoal}},
      {kNear, 32, 4, {kGoal, kGoal, kGoal}},  {kNear, 32, 8, {1.26, 1.31, kGoal}},
      {kNear, 4, 4, {1.26, 1.21, kGoal}},     {kNear, 4, 8, {1.46, 1.36, 1.51}},
  };
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < std::size(kSlower); ++i) {
      expect_at_most(row.most[i], {row.line, row.hosts, 4 * kMiB, row.bits, kSlower[i]});
    }
  }
}

// So that the table means something: an algorithm with more bytes misses the goal that the chosen one keeps.
TEST(Goals, are_missed_where_every_rank_sends_everything_to_all) {
  const Known known({kNear, 4, 4 * kMiB, 32});
  engine::ResolvedCall call = known.call();
  call.algorithm = Algorithm::one_shot;
  const SimulationResult result = simulate(known.options(), call).take_or_throw();
  EXPECT_GT(std::chrono::duration<double>(result.time).count() / known.bound(), 1.5);
}

}  // namespace
}  // namespace qccl::sim
