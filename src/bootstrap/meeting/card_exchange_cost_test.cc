// The cost of meeting for a rank, and for the store, by world size: docs/launchers.md states it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/meeting/generation_result.h"
#include "bootstrap/test_support.h"

namespace qccl::bootstrap {
namespace {

struct Cost {
  std::uint64_t requests = 0;
  std::uint64_t sent = 0;      // bytes of keys and values
  std::uint64_t received = 0;  // of values
};

std::string process_of(int rank) { return fmt::format("process {} on node{}", 100'000 + rank, rank / 8); }
// As long as the mesh's cards.
std::string card_of(int rank) { return fmt::format("{:-<180}", rank); }

std::string record_of(int rank, int world) {
  return encode_record(
      {static_cast<std::uint32_t>(world), static_cast<std::uint64_t>(rank) + 1, process_of(rank), card_of(rank)});
}

// The store as one rank sees it after all other ranks have done their part: no call waits.
class StoreOfOneRank final : public MemoryStore {
 public:
  StoreOfOneRank(int self, int world) : world_(world), own_card_(fmt::format("qccl/job/0/1/card/{}", self)) {
    for (int rank = 1; self == 0 && rank < world; ++rank) {
      MemoryStore::set(fmt::format("qccl/job/0/1/card/{}", rank), record_of(rank, world));
    }
    if (self == 0) return;
    MemoryStore::set("qccl/job/0/generation", "1");
    MemoryStore::set("qccl/job/0/1/open", process_of(0));
  }
  void set(const std::string& key, const std::string& value) override {
    count(key.size() + value.size(), 0);
    MemoryStore::set(key, value);
    if (key == own_card_) MemoryStore::set("qccl/job/0/1/outcome", outcome_with(value));
  }
  std::optional<std::string> get(const std::string& key, milliseconds) override {
    auto value = MemoryStore::get(key, milliseconds(0));
    count(key.size(), value.value().size());
    return value;
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    count(key.size() + sizeof(delta), sizeof(std::int64_t));
    return MemoryStore::add(key, delta);
  }
  const Cost& cost() const { return cost_; }

 private:
  void count(std::size_t sent, std::size_t received) {
    ++cost_.requests;
    cost_.sent += sent;
    cost_.received += received;
  }
  std::string outcome_with(const std::string& own_record) const {
    GenerationResult outcome{.kind = GenerationResult::Kind::complete, .nonce = 7};
    for (int rank = 0; rank < world_; ++rank) {
      const bool is_own = own_card_ == fmt::format("qccl/job/0/1/card/{}", rank);
      outcome.records.push_back(is_own ? own_record : record_of(rank, world_));
    }
    return encode_outcome(outcome);
  }

  const int world_;
  const std::string own_card_;
  Cost cost_;
};

Cost cost_of(int rank, int world) {
  StoreOfOneRank store(rank, world);
  KeySpace keys(store, "job", 0, kClock);
  const auto met = gather_cards(keys, {rank, world, process_of(rank), card_of(rank), "here"},
                                {&kClock, soon(seconds(20)), seconds(20)})
                       .take_or_throw();
  EXPECT_EQ(met.cards.size(), static_cast<std::size_t>(world));
  return store.cost();
}

// The last is larger than any world that InitOptions and launchers' variables allow.
constexpr int kWorlds[] = {8, 64, 512, kMaxWorld, 4 * kMaxWorld};

TEST(CardExchangeCost, a_rank_makes_six_requests_and_one_answer_is_as_long_as_the_world) {
  for (const int world : kWorlds) {
    for (const int rank : {1, world / 2, world - 1}) {
      const Cost cost = cost_of(rank, world);
      EXPECT_LE(cost.requests, 6u);
      EXPECT_LE(cost.sent, 500u);
      EXPECT_LE(cost.received, 250u * static_cast<unsigned>(world) + 100);
    }
  }
}

// The bytes that all ranks receive together are why worlds are limited: the only cost that grows with the square.
TEST(CardExchangeCost, rank_0_makes_a_request_for_each_other_rank_and_the_store_bears_the_sum) {
  for (const int world : kWorlds) {
    const Cost rank_0 = cost_of(0, world);
    const Cost other = cost_of(world / 2, world);
    const auto ranks = static_cast<std::uint64_t>(world);
    EXPECT_LE(rank_0.requests, ranks + 5);
    EXPECT_LE(rank_0.sent, 280 * ranks + 200);
    EXPECT_LE(rank_0.received, 250 * ranks + 100);
    EXPECT_LE(rank_0.requests + (ranks - 1) * other.requests, 7 * ranks);
    EXPECT_LE(rank_0.sent + (ranks - 1) * other.sent, 800 * ranks);
    EXPECT_LE(rank_0.received + (ranks - 1) * other.received, 250 * ranks * ranks + 100 * ranks);
  }
}

}  // namespace
}  // namespace qccl::bootstrap
