// The cost of meeting for a rank, and for the store, by world size: docs/launchers.md states it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "bootstrap/launcher/membership.h"
#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/meeting/generation_result.h"

namespace qccl::bootstrap {
namespace {

struct Cost {
  std::uint64_t requests = 0;
  std::uint64_t sent = 0;      // bytes of keys and values
  std::uint64_t received = 0;  // of values
};

std::string process_of(int rank) { return fmt::format("process {} on node{}", 100'000 + rank, rank / 8); }
// As long as the mesh's cards.
std::string card(int rank) { return fmt::format("{:-<180}", rank); }

// The store as one rank sees it after all other ranks have done their part: no call waits.
class StoreOfOneRank final : public Store {
 public:
  StoreOfOneRank(int rank, int world) : rank_(rank), world_(world) {
    if (rank_ == 0) return;
    values_["qccl/job/0/generation"] = "1";
    values_["qccl/job/0/1/open"] = process_of(0);
  }
  void set(const std::string& key, const std::string& value) override {
    count(key.size() + value.size(), 0);
    values_[key] = value;
  }
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds) override {
    auto value = value_of(key);
    count(key.size(), value.size());
    return value;
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    auto& value = values_[key];
    const std::int64_t sum = (value.empty() ? 0 : std::stoll(value)) + delta;
    value = std::to_string(sum);
    count(key.size() + sizeof(delta), sizeof(sum));
    return sum;
  }
  const Cost& cost() const { return cost_; }

 private:
  void count(std::size_t sent, std::size_t received) {
    ++cost_.requests;
    cost_.sent += sent;
    cost_.received += received;
  }
  std::string record_of(int rank) const {
    const auto own = values_.find(fmt::format("qccl/job/0/1/card/{}", rank));
    if (own != values_.end()) return own->second;
    return encode_record(
        {static_cast<std::uint32_t>(world_), static_cast<std::uint64_t>(rank) + 1, process_of(rank), card(rank)});
  }
  std::string value_of(const std::string& key) const {
    if (key == "qccl/job/0/1/outcome") {
      GenerationResult outcome{.kind = GenerationResult::Kind::complete, .nonce = 7};
      for (int rank = 0; rank < world_; ++rank) outcome.records.push_back(record_of(rank));
      return encode_outcome(outcome);
    }
    const std::string cards = "qccl/job/0/1/card/";
    if (key.starts_with(cards)) return record_of(std::stoi(key.substr(cards.size())));
    return values_.at(key);
  }

  const int rank_;
  const int world_;
  std::map<std::string, std::string> values_;
  Cost cost_;
};

Cost cost_of(int rank, int world) {
  const SteadyClock clock;
  StoreOfOneRank store(rank, world);
  KeySpace keys(store, "job", 0, clock);
  const auto limit = std::chrono::seconds(20);
  const auto met =
      gather_cards(keys, {rank, world, process_of(rank), card(rank), "here"}, {&clock, clock.now() + limit, limit});
  EXPECT_TRUE(met.ok()) << (met.ok() ? "" : met.error().message);
  EXPECT_EQ(met.ok() ? met.value().cards.size() : 0, static_cast<std::size_t>(world));
  return store.cost();
}

// The last is larger than any world that InitOptions and launchers' variables allow.
constexpr int kWorlds[] = {8, 64, 512, kMaxWorld, 4 * kMaxWorld};

TEST(CardExchangeCost, of_a_rank_is_six_requests_and_one_answer_as_long_as_the_world) {
  for (const int world : kWorlds) {
    for (const int rank : {1, world / 2, world - 1}) {
      const Cost cost = cost_of(rank, world);
      EXPECT_LE(cost.requests, 6u);
      EXPECT_LE(cost.sent, 500u);
      EXPECT_LE(cost.received, 250u * static_cast<unsigned>(world) + 100);
    }
  }
}

TEST(CardExchangeCost, of_rank_0_is_a_request_for_each_other_and_one_value_as_long_as_the_world) {
  for (const int world : kWorlds) {
    const Cost cost = cost_of(0, world);
    const auto ranks = static_cast<unsigned>(world);
    EXPECT_LE(cost.requests, ranks + 5);
    EXPECT_LE(cost.sent, 280u * ranks + 200);
    EXPECT_LE(cost.received, 250u * ranks + 100);
  }
}

// The bytes that all ranks receive together are why worlds are limited: the only cost that grows with the square.
TEST(CardExchangeCost, of_the_store_is_what_all_ranks_send_and_get) {
  for (const int world : kWorlds) {
    const Cost rank_0 = cost_of(0, world);
    const Cost other = cost_of(world / 2, world);
    const auto ranks = static_cast<std::uint64_t>(world);
    EXPECT_LE(rank_0.requests + (ranks - 1) * other.requests, 7 * ranks);
    EXPECT_LE(rank_0.sent + (ranks - 1) * other.sent, 800 * ranks);
    EXPECT_LE(rank_0.received + (ranks - 1) * other.received, 250 * ranks * ranks + 100 * ranks);
  }
}

}  // namespace
}  // namespace qccl::bootstrap
