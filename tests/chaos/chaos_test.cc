// A job of six processes that are killed and stopped about every second, for some time, while new ones come in their
// place. Each of its results is checked (step.h), as are the descriptors of each process that ends by itself, and that
// nothing is left in /dev/shm.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>

#include "chaos/driver.h"
#include "support/long_run.h"

namespace qccl::testing {
namespace {

// QCCL's names in /dev/shm, where shared memory can outlive its processes. Other programs have theirs there too.
std::set<std::string> names_in_dev_shm() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (const std::string name = entry.path().filename(); name.find("qccl") != name.npos) names.insert(name);
  }
  return names;
}

class ChaosTest : public ::testing::TestWithParam<TransportChoice> {};

// CHAOS_SECONDS says for how long, CHAOS_SEED with which faults. Over TCP the job has a key, and with it TLS.
TEST_P(ChaosTest, of_kills_stops_and_newcomers_loses_nothing) {
  const std::uint64_t seed = environment_number("CHAOS_SEED", 20261127);
  const std::uint64_t duration = environment_number("CHAOS_SECONDS", 15);
  const bool is_shm = GetParam() == TransportChoice::shm;
  const char* const name = is_shm ? "shm" : "tcp";
  Chaos chaos({.seed = seed,
               .duration = std::chrono::seconds(duration),
               .transport = GetParam(),
               .key = is_shm ? "" : "the key of the chaos test"});
  const std::set<std::string> names_before = names_in_dev_shm();
  const std::string problem = chaos.run();
  EXPECT_EQ(problem, "") << "to replay: CHAOS_SEED=" << seed << " CHAOS_SECONDS=" << duration
                         << " build/tests/qccl_test_chaos --gtest_filter='*Chaos*" << name << "'";
  const ChaosCounts& counts = chaos.counts();
  const auto& times = counts.retry_ms;
  std::puts(
      fmt::format("chaos over {}, seed {}, {} s: {} kills, {} stops, {} left out, {} joins, {} calls; from a kill to "
                  "the last survivor's repeated call: median {:.0f} ms, most {:.0f} ms, of {}",
                  name, seed, duration, counts.kills, counts.stops, counts.left_out, counts.joins, counts.steps,
                  times.empty() ? 0 : times[times.size() / 2], times.empty() ? 0 : times.back(), times.size())
          .c_str());
  if (!problem.empty()) return;
  EXPECT_GT(counts.kills, 0);
  EXPECT_GT(counts.joins, 6);
  EXPECT_EQ(names_in_dev_shm(), names_before);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
}

INSTANTIATE_TEST_SUITE_P(Over, ChaosTest, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         [](const auto& info) { return info.param == TransportChoice::shm ? "shm" : "tcp"; });

}  // namespace
}  // namespace qccl::testing
