// A failed allocation while a job grows: each of the library's in turn, on members, at their doors or on the newcomer.
// Members end with the same group, the old one or a grown one, or all fail; the newcomer comes in or fails. Nothing
// hangs, and nothing ends the process.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "memory/counted_new.h"
#include "support/thread_job.h"

namespace qccl::testing {
namespace {

using namespace std::chrono_literals;

constexpr int kMembers = 2;
constexpr int kNewcomer = kMembers;
constexpr auto kPatience = 20s;  // of a job

struct Outcome {
  std::optional<Communicator> old{}, grown{};
  std::string failure{};
  bool is_wrong = false;  // it threw something else than an Error about memory, or about those who lack it
};

class RefusedGrowth {
 public:
  // Whether there was an allocation to refuse.
  bool run(std::int64_t nth) {
    std::array<std::thread, kMembers + 1> threads;
    for (int rank = 0; rank <= kNewcomer; ++rank) {
      threads[static_cast<std::size_t>(rank)] = std::thread([this, rank, nth] { run_rank(rank, nth); });
    }
    for (std::thread& each : threads) each.join();
    return was_refused_;
  }

  const Outcome& of(int rank) const { return outcomes_[static_cast<std::size_t>(rank)]; }
  bool goes_on(int rank) const { return goes_on_[static_cast<std::size_t>(rank)]; }

 private:
  InitOptions options() const {
    InitOptions init;
    init.transport = TransportChoice::tcp;
    init.timeout = 5s;
    init.init_timeout = 5s;
    return init;
  }

  void run_rank(int rank, std::int64_t nth) {
    Outcome& own = outcomes_[static_cast<std::size_t>(rank)];
    InitOptions init = options();
    if (rank == kNewcomer) {
      together_.arrive_and_wait();
      init.join = door_;
      init.init_timeout = 3s;
    } else {
      init.rank = rank;
      init.world = kMembers;
      init.store = store_;
      init.open = true;
      own.old = qccl::init(init);
      if (rank == 0) door_ = own.old->door();
      together_.arrive_and_wait();
    }
    together_.arrive_and_wait();
    if (rank == 0) refuse_allocation(nth);
    together_.arrive_and_wait();
    grow(own, init);
    together_.arrive_and_wait();
    if (rank == 0) was_refused_ = stop_refusing();
    together_.arrive_and_wait();
    if (own.grown) goes_on_[static_cast<std::size_t>(rank)] = has_sum(*own.grown);
    if (!own.grown && own.old) goes_on_[static_cast<std::size_t>(rank)] = has_sum(*own.old);
    together_.arrive_and_wait();
    own.grown.reset();
    own.old.reset();
  }

  static void grow(Outcome& own, const InitOptions& init) {
    for (int attempt = 0; attempt < 2 && !own.grown; ++attempt) {
      try {
        if (!own.old) {
          own.grown = qccl::init(init);
        } else if (Communicator grown = own.old->grow({.at_least = 1, .patience = 200ms, .timeout = 2s});
                   grown.size() > kMembers) {
          own.grown = grown;
        }
      } catch (const Error& error) {
        own.failure = error.what();
        if (error.kind() != ErrorKind::resource_exhausted) return;
      } catch (const std::exception& error) {
        own.failure = error.what();
        own.is_wrong = true;
        return;
      }
    }
  }

  static bool has_sum(Communicator& comm) {
    try {
      std::array<std::uint64_t, 1> values{1};
      comm.all_reduce(values.data(), values.data(), 1, DataType::uint64);
      return values[0] == static_cast<std::uint64_t>(comm.size());
    } catch (const Error&) {
      return false;
    }
  }

  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  std::string door_;
  std::array<Outcome, kMembers + 1> outcomes_;
  std::array<bool, kMembers + 1> goes_on_{};
  std::barrier<> together_{kMembers + 1};
  bool was_refused_ = false;
};

TEST(RefusedGrowth, leaves_members_with_the_same_group_and_hangs_nobody) {
  const bool tries_all = std::getenv("MEMORY_SOAK") != nullptr;
  bool goes_on = true;
  for (std::int64_t nth = 1; goes_on && !HasFailure(); nth += tries_all ? 1 : std::max<std::int64_t>(1, nth / 2)) {
    RefusedGrowth job;
    const auto begin = std::chrono::steady_clock::now();
    goes_on = job.run(nth);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience) << "allocation " << nth;
    for (int rank = 0; rank <= kNewcomer; ++rank) {
      EXPECT_FALSE(job.of(rank).is_wrong) << "allocation " << nth << ", rank " << rank << ": " << job.of(rank).failure;
    }
    EXPECT_EQ(job.goes_on(0), job.goes_on(1))
        << "allocation " << nth << ": " << job.of(0).failure << "; " << job.of(1).failure;
    EXPECT_TRUE(goes_on || job.goes_on(kNewcomer)) << "without a refusal";
  }
}

}  // namespace
}  // namespace qccl::testing
