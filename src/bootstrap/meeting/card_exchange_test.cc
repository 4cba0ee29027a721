// Ranks are threads that meet in a store of this process.
#include "bootstrap/meeting/card_exchange.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>

#include "base/text.h"
#include "bootstrap/protocol/key_rules.h"
#include "bootstrap/store/tcp_store.h"
#include "bootstrap/store/tcp_store_server.h"
#include "bootstrap/test_support.h"

namespace qccl::bootstrap {
namespace {

struct Rank {
  int rank = 0;
  int world = 2;
  milliseconds timeout = seconds(20);
  std::string job = "job";
  std::uint32_t restart = 0;
  std::string card_prefix = "card";
};

Result<GatheredCards> meet(Store& store, const Rank& self) {
  KeySpace keys(store, self.job, self.restart, kClock);
  const std::string rank = std::to_string(self.rank);
  return gather_cards(keys, {self.rank, self.world, "process " + rank, self.card_prefix + rank, "at the test's store"},
                      {&kClock, soon(self.timeout), self.timeout});
}

// The same in a thread of its own.
std::future<Result<GatheredCards>> meeting(Store& store, Rank self) {
  return std::async(std::launch::async, [&store, self] { return meet(store, self); });
}

void expect_meets(Result<GatheredCards> result, int world, const std::string& prefix = "card") {
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(result->cards.size(), static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    EXPECT_EQ(result->cards[static_cast<std::size_t>(rank)], prefix + std::to_string(rank));
  }
}

struct CardExchange : testing::Test {
  MemoryStore store;
};

TEST_F(CardExchange, all_ranks_get_all_cards_and_one_nonce) {
  for (int world = 1; world <= 8; ++world) {
    MemoryStore fresh;
    std::vector<std::future<Result<GatheredCards>>> ranks;
    for (int rank = 0; rank < world; ++rank) ranks.push_back(meeting(fresh, {.rank = rank, .world = world}));
    std::optional<std::uint64_t> nonce;
    for (auto& rank : ranks) {
      auto result = rank.get();
      ASSERT_TRUE(result.ok()) << result.error().message;
      EXPECT_EQ(nonce.value_or(result->nonce), result->nonce);
      nonce = result->nonce;
      EXPECT_EQ(result->generation, 1u);
      expect_meets(std::move(result), world);
    }
  }
}

TEST_F(CardExchange, rank_0_names_the_missing_ranks_and_its_failure_reaches_the_others) {
  auto rank_1 = meeting(store, {.rank = 1, .world = 5});
  auto rank_3 = meeting(store, {.rank = 3, .world = 5});
  store.await("qccl/job/0/generation");
  auto rank_0 = meet(store, {.rank = 0, .world = 5, .timeout = milliseconds(1000)});
  expect_failure(rank_0, ErrorKind::deadline_exceeded,
                 "rank 0 of 5: ranks 2, 4 did not appear within 1.0 s at the test's store");
  EXPECT_EQ(rank_0.error().rank, 0);
  EXPECT_EQ(rank_0.error().peer, 2);
  const std::string given_up = " of 5: rank 0 gave up: ranks 2, 4 did not appear";
  expect_failure(rank_1.get(), ErrorKind::deadline_exceeded, "rank 1" + given_up);
  expect_failure(rank_3.get(), ErrorKind::deadline_exceeded, "rank 3" + given_up);
}

TEST_F(CardExchange, a_rank_that_gives_up_ends_rank_0_before_its_own_deadline) {
  auto rank_0 = meeting(store, {.rank = 0, .world = 3});
  store.await("qccl/job/0/1/open");
  expect_failure(meet(store, {.rank = 1, .world = 3, .timeout = seconds(1)}), ErrorKind::deadline_exceeded,
                 "rank 1 of 3: rank 2 did not appear within 1.0 s");
  expect_failure(rank_0.get(), ErrorKind::deadline_exceeded, "rank 0 of 3: rank 1 gave up: rank 2 did not appear");
}

TEST_F(CardExchange, without_rank_0_its_absence_is_named) {
  expect_failure(meet(store, {.rank = 1, .timeout = milliseconds(50)}), ErrorKind::deadline_exceeded,
                 "rank 1 of 2: rank 0 did not appear");
}

TEST_F(CardExchange, of_two_processes_with_rank_0_the_older_fails_and_the_newer_leads) {
  auto elder = meeting(store, {.rank = 0, .world = 3});
  auto rank_1 = meeting(store, {.rank = 1, .world = 3});
  store.await("qccl/job/0/1/card/1");
  auto younger = meeting(store, {.rank = 0, .world = 3});
  expect_failure(elder.get(), ErrorKind::misuse, "is rank 0 of this job too");
  expect_meets(meet(store, {.rank = 2, .world = 3}), 3);
  expect_meets(younger.get(), 3);
  expect_meets(rank_1.get(), 3);
}

TEST_F(CardExchange, restarts_in_one_store_do_not_see_each_others_cards) {
  auto dead = meeting(store, {.rank = 1, .timeout = milliseconds(300), .card_prefix = "dead"});
  auto rank_0 = meeting(store, {.rank = 0, .restart = 1, .card_prefix = "alive"});
  expect_meets(meet(store, {.rank = 1, .restart = 1, .card_prefix = "alive"}), 2, "alive");
  expect_meets(rank_0.get(), 2, "alive");
  expect_failure(dead.get(), ErrorKind::deadline_exceeded, "rank 0 did not appear");
}

TEST_F(CardExchange, after_a_failed_attempt_the_next_one_meets) {
  EXPECT_FALSE(meet(store, {.rank = 0, .timeout = milliseconds(20)}).ok());
  EXPECT_FALSE(meet(store, {.rank = 0, .timeout = milliseconds(20)}).ok());
  auto rank_1 = meeting(store, {.rank = 1});
  expect_meets(meet(store, {.rank = 0}), 2);
  expect_meets(rank_1.get(), 2);
}

// Rank 0 died silently after it had opened a generation; rank 1 waits in it.
TEST_F(CardExchange, a_rank_that_waits_in_a_dead_generation_moves_to_the_next) {
  store.add("qccl/job/0/generation", 1);
  store.set("qccl/job/0/1/open", "the dead");
  auto rank_1 = meeting(store, {.rank = 1});
  store.await("qccl/job/0/1/card/1");
  auto rank_0 = meet(store, {.rank = 0});
  ASSERT_TRUE(rank_0.ok()) << rank_0.error().message;
  EXPECT_EQ(rank_0->generation, 2u);
  expect_meets(rank_1.get(), 2);
}

TEST_F(CardExchange, different_world_sizes_are_an_error_that_names_both) {
  auto rank_0 = meeting(store, {.rank = 0, .world = 4});
  expect_failure(meet(store, {.rank = 1, .world = 2}), ErrorKind::invalid_argument, "world size is 2 on rank 1");
  expect_failure(rank_0.get(), ErrorKind::invalid_argument, "but 4 on rank 0");
}

TEST_F(CardExchange, a_rank_beyond_the_world_learns_its_size) {
  auto rank_0 = meeting(store, {.rank = 0, .world = 2});
  store.await("qccl/job/0/1/open");
  auto rank_5 = meeting(store, {.rank = 5, .world = 8});
  store.await("qccl/job/0/1/card/5");
  expect_meets(meet(store, {.rank = 1, .world = 2}), 2);
  expect_meets(rank_0.get(), 2);
  expect_failure(rank_5.get(), ErrorKind::invalid_argument, "the world size is 8 here but 2 on rank 0");
}

TEST_F(CardExchange, an_exception_of_the_store_is_a_failure_that_names_the_rank) {
  class BrokenStore final : public Store {
    void set(const std::string&, const std::string&) override { throw std::runtime_error("disk on fire"); }
    std::optional<std::string> get(const std::string&, milliseconds) override { return std::nullopt; }
    std::int64_t add(const std::string&, std::int64_t) override { return 1; }
  } broken;
  expect_failure(meet(broken, {.rank = 0}), ErrorKind::unsupported, "rank 0 of 2: the store failed: disk on fire");
}

TEST_F(CardExchange, garbage_in_the_store_is_corrupt_data) {
  store.set("qccl/job/0/1/card/1", "garbage");
  expect_failure(meet(store, {.rank = 0}), ErrorKind::corrupt_data, "rank's record");
}

TEST_F(CardExchange, a_claim_that_no_card_follows_counts_for_nothing) {
  store.add("qccl/job/0/1/claim/1", 1);
  auto rank_0 = meeting(store, {.rank = 0});
  expect_meets(meet(store, {.rank = 1}), 2);
  expect_meets(rank_0.get(), 2);
}

TEST_F(CardExchange, a_close_that_no_outcome_follows_counts_for_nothing) {
  store.add("qccl/job/0/1/closed", 1);
  auto rank_0 = meeting(store, {.rank = 0});
  store.await("qccl/job/0/1/open");
  expect_meets(meet(store, {.rank = 1}), 2);
  expect_meets(rank_0.get(), 2);
}

TEST_F(CardExchange, text_of_another_rank_is_printable_and_marked_as_such) {
  auto rank_0 = meeting(store, {.rank = 0, .world = 3});
  store.await("qccl/job/0/1/open");
  store.add("qccl/job/0/1/closed", 1);
  store.set("qccl/job/0/1/outcome",
            encode_outcome({.kind = GenerationResult::Kind::failed, .reason = "\x1B]0;gotcha\a\n"}));
  const auto result = rank_0.get();
  expect_failure(result, ErrorKind::deadline_exceeded,
                 "rank 0 of 3:  ]0;gotcha   (from the store at the test's store, which any process");
  EXPECT_EQ(result.error().message.find('\x1B'), std::string::npos);
}

TEST_F(CardExchange, garbage_as_an_outcome_is_corrupt_data_and_blames_strangers_too) {
  auto rank_0 = meeting(store, {.rank = 0, .world = 3});
  store.await("qccl/job/0/1/open");
  store.set("qccl/job/0/1/outcome", "garbage");
  store.add("qccl/job/0/1/closed", 1);
  expect_failure(rank_0.get(), ErrorKind::corrupt_data, "or a stranger that reaches the store");
}

// The first server ends while rank 1 waits in it (a job restarts on the same port); rank 1 then meets at the second.
TEST_F(CardExchange, starts_again_when_the_store_is_replaced) {
  auto server = TcpStoreServer::start("127.0.0.1", 0).take_or_throw();
  const TcpStoreOptions options{"127.0.0.1", server->port(), kClock.now() + seconds(20), &kClock};
  auto rank_1 = std::async(std::launch::async, [&] {
    TcpStore own(options);
    return meet(own, {.rank = 1});
  });
  TcpStore observer(options);
  observer.add("qccl/job/0/generation", 1);
  observer.set("qccl/job/0/1/open", "the first server");
  ASSERT_TRUE(observer.get("qccl/job/0/1/card/1", seconds(20)).has_value());
  server->stop(seconds(0));
  server = TcpStoreServer::start("127.0.0.1", options.port).take_or_throw();
  TcpStore own(options);
  expect_meets(meet(own, {.rank = 0}), 2);
  expect_meets(rank_1.get(), 2);
}

// A job's own store, as rank 0 serves it.
struct CardExchangeAtJobStore : testing::Test {
  static constexpr int kWorld = 3;
  std::unique_ptr<TcpStoreServer> server =
      TcpStoreServer::start("127.0.0.1", 0, std::make_shared<JobRules>("job", 0, kWorld)).take_or_throw();
  const TcpStoreOptions options{"127.0.0.1", server->port(), kClock.now() + seconds(60), &kClock};
  TcpStore rank_0{options, server->take_own_client()};
  TcpStore rank_1{options}, rank_2{options}, other{options};
};

TEST_F(CardExchangeAtJobStore, ranks_meet_whether_they_come_before_or_after_rank_0) {
  auto early = meeting(rank_1, {.rank = 1, .world = kWorld});
  auto first = meeting(rank_0, {.rank = 0, .world = kWorld});
  ASSERT_TRUE(other.get("qccl/job/0/1/open", seconds(60)).has_value());
  expect_meets(meet(rank_2, {.rank = 2, .world = kWorld}), kWorld);
  expect_meets(first.get(), kWorld);
  expect_meets(early.get(), kWorld);
}

TEST_F(CardExchangeAtJobStore, a_second_process_of_a_rank_is_refused) {
  auto first = meeting(rank_0, {.rank = 0, .world = kWorld});
  auto second = meeting(rank_1, {.rank = 1, .world = kWorld});
  ASSERT_TRUE(other.get("qccl/job/0/1/card/1", seconds(60)).has_value());
  expect_failure(meet(other, {.rank = 1, .world = kWorld}), ErrorKind::misuse, "another process (process 1) is rank 1");
  expect_meets(meet(rank_2, {.rank = 2, .world = kWorld}), kWorld);
  expect_meets(first.get(), kWorld);
  expect_meets(second.get(), kWorld);
}

TEST_F(CardExchangeAtJobStore, a_client_that_is_no_rank_ends_no_start) {
  auto first = meeting(rank_0, {.rank = 0, .world = kWorld});
  auto second = meeting(rank_1, {.rank = 1, .world = kWorld});
  ASSERT_TRUE(other.get("qccl/job/0/1/card/1", seconds(60)).has_value());
  const std::string outcome = encode_outcome({.kind = GenerationResult::Kind::failed, .reason = "gotcha"});
  for (const auto& [key, value] : Will{{"outcome", outcome}, {"closed", "1"}, {"failure", "gotcha"}}) {
    TcpStore stranger(options);
    stranger.add("qccl/job/0/1/claim/2", 1);
    stranger.set("qccl/job/0/1/" + key, value);
    EXPECT_FALSE(caught([&] { stranger.add("qccl/job/0/generation", 0); }).ok()) << key;
  }
  EXPECT_FALSE(caught([&] { TcpStore(options).add("qccl/job/0/1/closed", 1); }).ok());
  expect_meets(meet(rank_2, {.rank = 2, .world = kWorld}), kWorld);
  expect_meets(first.get(), kWorld);
  expect_meets(second.get(), kWorld);
  TcpStore observer(options);
  EXPECT_EQ(observer.get("qccl/job/0/1/failure", milliseconds(0)), std::nullopt);
}

// That of a process which is killed once its card is in the store.
class EndingClient final : public PipelinedStore {
 public:
  explicit EndingClient(const TcpStoreOptions& options) : store_(options) {}
  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::optional<std::string> get(const std::string& key, milliseconds timeout) override {
    return store_.get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return store_.add(key, delta); }
  std::vector<std::int64_t> counters(const std::vector<std::string>& keys) override { return store_.counters(keys); }
  ClaimAnswer claim(const ClaimRequest& request, milliseconds) override {
    store_.claim(request, milliseconds(0));
    throw std::runtime_error("killed");
  }
  void leave_will(const Will& will) override {
    if (!will.empty()) store_.leave_will(will);
  }
  bool knows_wills() const override { return store_.knows_wills(); }

 private:
  TcpStore store_;
};

TEST_F(CardExchangeAtJobStore, a_rank_that_ends_while_it_waits_ends_the_others) {
  auto first = meeting(rank_0, {.rank = 0, .world = kWorld, .timeout = std::chrono::hours(1)});
  ASSERT_TRUE(other.get("qccl/job/0/1/open", seconds(60)).has_value());
  expect_failure(meet(*std::make_unique<EndingClient>(options), {.rank = 1, .world = kWorld}), ErrorKind::unsupported);
  const std::string reason = "rank 1 (process 1) ended before all ranks were connected";
  expect_failure(first.get(), ErrorKind::aborted, "rank 0 of 3: " + reason);
  EXPECT_EQ(other.get("qccl/job/0/1/failure", seconds(60)), reason) << "for those that connect already";
}

// The server knows the end of a client before it answers one that connects later.
void expect_no_end_by_a_second_process(const TcpStoreOptions& options, Store& own) {
  TcpStore store_1(options), store_2(options), observer(options);
  auto first = meeting(own, {.rank = 0, .world = 3});
  auto second = meeting(store_1, {.rank = 1, .world = 3});
  ASSERT_TRUE(observer.get("qccl/job/0/1/card/1", seconds(60)).has_value());
  expect_failure(meet(*std::make_unique<EndingClient>(options), {.rank = 1, .world = 3}), ErrorKind::unsupported);
  EXPECT_EQ(TcpStore(options).get("qccl/job/0/1/failure", milliseconds(0)), std::nullopt);
  expect_meets(meet(store_2, {.rank = 2, .world = 3}), 3);
  expect_meets(first.get(), 3);
  expect_meets(second.get(), 3);
}

TEST_F(CardExchangeAtJobStore, a_second_process_of_a_rank_that_ends_before_it_learns_so_ends_nobody) {
  expect_no_end_by_a_second_process(options, rank_0);
}

TEST(CardExchangeAtPlainStore, a_second_process_of_a_rank_that_ends_before_it_learns_so_ends_nobody) {
  const auto server = TcpStoreServer::start("127.0.0.1", 0).take_or_throw();
  const TcpStoreOptions options{"127.0.0.1", server->port(), kClock.now() + seconds(60), &kClock};
  TcpStore own(options, server->take_own_client());
  expect_no_end_by_a_second_process(options, own);
}

TEST(CardExchangeAtPlainStore, a_rank_that_ends_while_it_waits_ends_the_others) {
  const auto server = TcpStoreServer::start("127.0.0.1", 0).take_or_throw();
  const TcpStoreOptions options{"127.0.0.1", server->port(), kClock.now() + seconds(60), &kClock};
  TcpStore own(options, server->take_own_client());
  auto first = meeting(own, {.rank = 0, .world = 3, .timeout = std::chrono::hours(1)});
  ASSERT_TRUE(TcpStore(options).get("qccl/job/0/1/open", seconds(60)).has_value());
  expect_failure(meet(*std::make_unique<EndingClient>(options), {.rank = 1, .world = 3}), ErrorKind::unsupported);
  expect_failure(first.get(), ErrorKind::aborted, "rank 1 (process 1) ended before all ranks were connected");
}

TEST_F(CardExchangeAtJobStore, a_process_beyond_the_world_ends_nobody) {
  auto first = meeting(rank_0, {.rank = 0, .world = kWorld});
  auto second = meeting(rank_1, {.rank = 1, .world = kWorld});
  auto stray = std::make_unique<TcpStore>(options);
  auto beyond = meeting(*stray, {.rank = 5, .world = 8});
  ASSERT_TRUE(other.get("qccl/job/0/1/card/5", seconds(60)).has_value());
  expect_meets(meet(rank_2, {.rank = 2, .world = kWorld}), kWorld);
  expect_meets(first.get(), kWorld);
  expect_meets(second.get(), kWorld);
  expect_failure(beyond.get(), ErrorKind::invalid_argument, "the world size is 8 here but 3 on rank 0");
  stray.reset();
  EXPECT_EQ(other.get("qccl/job/0/1/failure", milliseconds(50)), std::nullopt);
}

TEST_F(CardExchangeAtJobStore, a_process_beyond_the_world_that_is_killed_ends_nobody) {
  auto first = meeting(rank_0, {.rank = 0, .world = kWorld});
  ASSERT_TRUE(other.get("qccl/job/0/1/open", seconds(60)).has_value());
  expect_failure(meet(*std::make_unique<EndingClient>(options), {.rank = 5, .world = 8}), ErrorKind::unsupported);
  EXPECT_EQ(TcpStore(options).get("qccl/job/0/1/failure", milliseconds(0)), std::nullopt);
  auto second = meeting(rank_1, {.rank = 1, .world = kWorld});
  expect_meets(meet(rank_2, {.rank = 2, .world = kWorld}), kWorld);
  expect_meets(first.get(), kWorld);
  expect_meets(second.get(), kWorld);
}

TEST_F(CardExchangeAtJobStore, a_claim_that_no_card_follows_counts_for_nothing) {
  auto first = meeting(rank_0, {.rank = 0, .world = kWorld});
  ASSERT_TRUE(other.get("qccl/job/0/1/open", seconds(60)).has_value());
  EXPECT_EQ(other.add("qccl/job/0/1/claim/1", 1), 1);
  auto second = meeting(rank_1, {.rank = 1, .world = kWorld});
  expect_meets(meet(rank_2, {.rank = 2, .world = kWorld}), kWorld);
  expect_meets(first.get(), kWorld);
  expect_meets(second.get(), kWorld);
}

TEST_F(CardExchangeAtJobStore, the_deadline_of_a_rank_that_waits_names_the_missing) {
  auto first = meeting(rank_0, {.rank = 0, .world = kWorld});
  ASSERT_TRUE(other.get("qccl/job/0/1/open", seconds(60)).has_value());
  expect_failure(meet(rank_1, {.rank = 1, .world = kWorld, .timeout = milliseconds(50)}), ErrorKind::deadline_exceeded,
                 "rank 2 did not appear within 0.1 s");
  expect_failure(first.get(), ErrorKind::deadline_exceeded, "rank 1 gave up: rank 2 did not appear");
}

TEST(GenerationResult, every_cut_of_an_outcome_is_corrupt_data) {
  GenerationResult outcome{.kind = GenerationResult::Kind::complete, .nonce = 7};
  outcome.records = {encode_record({2, 1, "a", "b"}), encode_record({2, 2, "c", "d"})};
  const std::string bytes = encode_outcome(outcome);
  ASSERT_EQ(decode_outcome(bytes)->records, outcome.records);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_outcome(std::string_view(bytes).substr(0, length)).ok());
  }
  EXPECT_FALSE(decode_outcome(bytes + "x").ok());
}

TEST(RankText, ranks_fold_into_runs) {
  EXPECT_EQ(ranks_text({2}), "rank 2");
  EXPECT_EQ(ranks_text({2, 3}), "ranks 2, 3");
  EXPECT_EQ(ranks_text({1, 2, 3, 5, 7, 8}), "ranks 1-3, 5, 7, 8");
  EXPECT_EQ(ranks_text({0, 2, 3, 4}), "ranks 0, 2-4");
}

TEST(RankText, times_are_in_seconds) { EXPECT_EQ(seconds_text(milliseconds(1250)), "1.2 s"); }

// ---- the cost of meeting for a rank, and for the store, by world size: docs/launchers.md states it

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
