// The promise that a failed allocation is a typed error. Each allocation of the library fails in turn, on any rank and
// thread. Every call then either throws on the rank concerned and can be retried, or the group is lost on all ranks
// with that cause. Nothing hangs, and nothing ends the process.
//
// For each step of a job, the first, second, third ... allocation from its beginning is refused, each in a separate
// job, until there are no more. MEMORY_SOAK=1 tries all of them; otherwise the test draws some of each step.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include "memory/counted_new.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

constexpr int kWorld = 2;
constexpr std::size_t kSmall = 100;
constexpr std::size_t kLarge = 100'000;
// The time limit of a step, the notification of a lost group included: far below the deadline of a call.
constexpr auto kPatience = std::chrono::seconds(8);
constexpr Milliseconds kDeadline{30'000};
constexpr Milliseconds kInitDeadline{3'000};
constexpr Milliseconds kShortInitDeadline{500};  // for jobs in which one rank is known to fail

// The program's current position, for the report if it ends or hangs.
std::atomic<const char*> current_step{""};
std::atomic<std::int64_t> current_allocation{0};

void say_where_and_abort() {
  std::fprintf(stderr, "terminate() in '%s', with allocation %ld refused\n", current_step.load(),
               static_cast<long>(current_allocation.load()));
  std::abort();
}

float value_of(int rank) { return static_cast<float>(rank + 1); }

// The state of a rank. The test allocates all of its own memory before any is refused.
struct Rank {
  explicit Rank(Communicator communicator) : comm(std::move(communicator)), other(1 - comm->rank()) { fill(); }

  void fill() {
    input.assign(kWorld * kLarge, value_of(comm->rank()));
    output.assign(kWorld * kLarge, -1.0F);
  }
  // These check the first elements of the output.
  bool is_sum(std::size_t count) const { return has(0, count, value_of(0) + value_of(1)); }
  bool is_gathered(std::size_t count) const { return has(0, count, value_of(0)) && has(count, count, value_of(1)); }
  bool has(std::size_t begin, std::size_t count, float value) const {
    return std::all_of(&output[begin], &output[begin] + count,
                       [&](float each) { return each > value - 0.1F && each < value + 0.1F; });
  }

  std::optional<Communicator> comm;
  int other;
  std::vector<float> input, output;
  std::vector<float> worker_error = std::vector<float>(onebit_sizes(kLarge, kWorld).worker_error);
  std::vector<float> server_error = std::vector<float>(onebit_sizes(kLarge, kWorld).server_error);
  std::optional<Work> work;
  std::optional<Communicator> child;
  std::optional<ErrorFeedback> feedback{std::in_place, kLarge};
  CallOptions plain{}, sra{.algorithm = Algorithm::sra}, ring{.algorithm = Algorithm::ring};
  CallOptions compressed{.compression = minmax({.bits = 4})};
  CallOptions kept{.algorithm = Algorithm::ring, .keep_input = true};
  CallOptions fed{.compression = block_int({.bits = 8})};
  std::vector<int> everyone{0, 1};
  std::string name{"a group whose name is no short string"};
};

struct Step {
  const char* name;
  std::function<void(Rank&)> call;            // one public call, which may be retried after it threw
  std::function<bool(const Rank&)> is_right;  // after it
  bool is_warm = false;                       // it has been made before
};

// ---- the steps

void all_reduce(Rank& rank, std::size_t count, const CallOptions& options) {
  rank.comm->all_reduce(rank.input.data(), rank.output.data(), count, DataType::float32, options);
}

// In place, after an input that it must leave as it was if it fails.
void all_reduce_in_place(Rank& rank) {
  std::copy(rank.input.begin(), rank.input.end(), rank.output.begin());
  try {
    rank.comm->all_reduce(rank.output.data(), rank.output.data(), kLarge, DataType::float32, rank.kept);
  } catch (const Error&) {
    if (!std::ranges::equal(rank.input, rank.output)) throw std::runtime_error("a failed call lost its input");
    throw;
  }
}

// Posts the call and waits. If it already has a Work, only waits.
template <class Post>
void post_and_wait(Rank& rank, const Post& post) {
  if (!rank.work) rank.work = post();
  rank.work->wait();
  rank.work.reset();
}

bool small_sum(const Rank& rank) { return rank.is_sum(kSmall); }
bool large_sum(const Rank& rank) { return rank.is_sum(kLarge); }
bool anything(const Rank&) { return true; }

std::vector<Step> reductions() {
  return {
      {"all_reduce, small", [](Rank& r) { all_reduce(r, kSmall, r.plain); }, small_sum},
      {"all_reduce, large", [](Rank& r) { all_reduce(r, kLarge, r.sra); }, large_sum},
      {"all_reduce, ring", [](Rank& r) { all_reduce(r, kLarge, r.ring); }, large_sum},
      {"all_reduce, compressed", [](Rank& r) { all_reduce(r, kLarge, r.compressed); }, large_sum},
      {"all_reduce, error feedback", [](Rank& r) { all_reduce(r, kLarge, r.fed); }, large_sum},
      {"all_reduce, keeping its input", all_reduce_in_place, large_sum},
      {"all_reduce, warm", [](Rank& r) { all_reduce(r, kLarge, r.sra); }, large_sum, true},
      {"all_reduce, compressed and warm", [](Rank& r) { all_reduce(r, kLarge, r.compressed); }, large_sum, true},
      {"all_reduce_async",
       [](Rank& r) {
         post_and_wait(r, [&] {
           return r.comm->all_reduce_async(r.input.data(), r.output.data(), kLarge, DataType::float32, r.compressed);
         });
       },
       large_sum},
      {"reduce_scatter",
       [](Rank& r) {
         r.comm->reduce_scatter(r.input.data(), r.output.data(), kLarge, DataType::float32, r.compressed);
       },
       large_sum},
      {"reduce", [](Rank& r) { r.comm->reduce(r.input.data(), r.output.data(), kLarge, DataType::float32); },
       [](const Rank& r) { return r.comm->rank() != 0 || r.is_sum(kLarge); }},
  };
}

std::vector<Step> movements() {
  return {
      {"broadcast", [](Rank& r) { r.comm->broadcast(r.input.data(), kLarge, DataType::float32, {}); }, anything},
      {"all_gather",
       [](Rank& r) { r.comm->all_gather(r.input.data(), r.output.data(), kLarge, DataType::float32, r.plain); },
       [](const Rank& r) { return r.is_gathered(kLarge); }},
      {"all_gather, compressed",
       [](Rank& r) { r.comm->all_gather(r.input.data(), r.output.data(), kLarge, DataType::float32, r.compressed); },
       [](const Rank& r) { return r.is_gathered(kLarge); }},
      {"gather", [](Rank& r) { r.comm->gather(r.input.data(), r.output.data(), kSmall, DataType::float32, r.plain); },
       [](const Rank& r) { return r.comm->rank() != 0 || r.is_gathered(kSmall); }},
      {"scatter", [](Rank& r) { r.comm->scatter(r.input.data(), r.output.data(), kLarge, DataType::float32, r.plain); },
       [](const Rank& r) { return r.has(0, kLarge, value_of(0)); }},
      {"all_to_all",
       [](Rank& r) { r.comm->all_to_all(r.input.data(), r.output.data(), kLarge, DataType::float32, r.plain); },
       [](const Rank& r) { return r.is_gathered(kLarge); }},
      {"all_gather_v",
       [](Rank& r) {
         static constexpr std::array<std::size_t, kWorld> kCounts{kSmall, kSmall};
         r.comm->all_gather_v(r.input.data(), r.output.data(), kCounts, DataType::float32, r.plain);
       },
       [](const Rank& r) { return r.is_gathered(kSmall); }},
      {"barrier", [](Rank& r) { r.comm->barrier(); }, anything},
      {"barrier_async", [](Rank& r) { post_and_wait(r, [&] { return r.comm->barrier_async(); }); }, anything},
      {"coalesced",
       [](Rank& r) {
         const std::array<CallBuffers, 2> buffers{CallBuffers{r.input.data(), r.output.data(), kSmall},
                                                  CallBuffers{&r.input[kSmall], &r.output[kSmall], kLarge - kSmall}};
         r.comm->all_reduce_coalesced(buffers, DataType::float32, r.plain);
       },
       large_sum},
  };
}

void exchange(Rank& rank, std::size_t count) {
  rank.comm->sendrecv({rank.input.data(), count, DataType::float32, rank.other},
                      {rank.output.data(), count, DataType::float32, rank.other});
}

// If one rank could not make the group, its peers' groups fail here.
void meet_in(std::optional<Communicator>& child) {
  try {
    child->barrier();
  } catch (const Error&) {  // not made, or the group is lost
    child->barrier();
  }
}

std::vector<Step> messages_and_groups() {
  return {
      {"sendrecv, small", [](Rank& r) { exchange(r, kSmall); },
       [](const Rank& r) { return r.has(0, kSmall, value_of(r.other)); }},
      {"sendrecv, large", [](Rank& r) { exchange(r, kLarge); },
       [](const Rank& r) { return r.has(0, kLarge, value_of(r.other)); }},
      {"send and recv",
       [](Rank& r) {
         if (r.comm->rank() == 0) r.comm->send(r.input.data(), kLarge, DataType::float32, 1);
         if (r.comm->rank() == 1) r.comm->recv(r.output.data(), kLarge, DataType::float32, kAnySource);
       },
       [](const Rank& r) { return r.comm->rank() == 0 || r.has(0, kLarge, value_of(0)); }},
      {"calls in a group",
       [](Rank& r) {
         post_and_wait(r, [&] {
           r.comm->group_start();
           r.comm->all_reduce(r.input.data(), r.output.data(), kSmall, DataType::float32, r.sra);
           r.comm->send(r.input.data(), kSmall, DataType::float32, r.other);
           r.comm->recv(&r.output[kSmall], kSmall, DataType::float32, r.other);
           return r.comm->group_end();
         });
       },
       [](const Rank& r) { return r.is_sum(kSmall) && r.has(kSmall, kSmall, value_of(r.other)); }},
      {"compressed_allreduce",
       [](Rank& r) {
         r.comm->compressed_allreduce({r.input.data(), kLarge}, {r.output.data(), kLarge}, r.worker_error,
                                      r.server_error);
       },
       [](const Rank& r) { return r.has(0, kLarge, (value_of(0) + value_of(1)) / 2); }},
      {"subgroup", [](Rank& r) { meet_in(r.child = r.comm->subgroup(r.everyone, r.name)); }, anything},
      {"split", [](Rank& r) { meet_in(r.child = r.comm->split(1, 0)); }, anything},
      {"dup", [](Rank& r) { meet_in(r.child = r.comm->dup()); }, anything},
      {"close of a subgroup",
       [](Rank& r) {
         if (r.child) r.child->close();
       },
       anything, true},
      {"in_flight, describe and traffic",
       [](Rank& r) {
         static_cast<void>(r.comm->in_flight());
         static_cast<void>(r.comm->describe());
         static_cast<void>(r.comm->traffic());
       },
       anything},
  };
}

// ---- one job for each allocation

// The outcome of a rank's step; an empty `wrong` means that nothing is wrong.
struct Outcome {
  bool is_lost = false;
  std::string error;
  std::string wrong;
};

bool is_about_memory(const Error& error) {
  return error.kind() == ErrorKind::resource_exhausted ||
         std::string_view(error.what()).find("memory") != std::string_view::npos;
}

// Makes the call and retries it once if it threw. The retry must work, or the group is lost.
void make(const Step& step, Rank& rank, Outcome& outcome) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      step.call(rank);
      outcome.is_lost = false;
      return;
    } catch (const Error& error) {
      outcome.is_lost = true;
      outcome.error = error.what();
      if (!is_about_memory(error)) outcome.wrong = std::string("threw ") + error.what();
    } catch (const std::exception& other) {
      outcome.wrong = std::string("threw no Error but ") + other.what();
      return;
    }
    if (rank.work && rank.work->done()) return;  // the call was posted, and has failed
  }
}

class RefusedMemory : public Transports {
 protected:
  RefusedMemory() : ended_(kWorld), begun_(kWorld) {}

  InitOptions init_options(int rank, const std::shared_ptr<Store>& store) const {
    InitOptions init;
    init.rank = rank;
    init.world = kWorld;
    init.store = store;
    init.transport = GetParam();
    init.timeout = kDeadline;
    init.init_timeout = kInitDeadline;
    init.compression = none();
    return init;
  }

  // Both ranks call it at once. Memory is refused from the moment both have arrived until both have finished.
  template <class Body>
  void while_refusing(int rank, std::int64_t nth, const Body& body) {
    begun_.arrive_and_wait();
    if (rank == 0) refuse_allocation(nth);
    begun_.arrive_and_wait();
    body();
    ended_.arrive_and_wait();
    if (rank == 0) was_refused_ = stop_refusing();
    ended_.arrive_and_wait();
  }

  void run_rank(int number, const Step& step, std::int64_t nth, const std::shared_ptr<Store>& store) {
    Outcome& outcome = outcomes_[static_cast<std::size_t>(number)];
    Rank rank(qccl::init(init_options(number, store)));
    if (std::string_view(step.name).find("error feedback") != std::string_view::npos) {
      rank.fed.error_feedback = *rank.feedback;
    }
    if (step.is_warm) warm_up(step, rank);
    while_refusing(number, nth, [&] { make(step, rank, outcome); });
    if (outcome.wrong.empty() && !outcome.is_lost && !step.is_right(rank)) outcome.wrong = "has a wrong result";
    // The group is either usable on all ranks or lost on all ranks.
    try {
      rank.fill();
      all_reduce(rank, kLarge, rank.sra);
      if (!rank.is_sum(kLarge)) outcome.wrong = "has a wrong result in the next call";
    } catch (const Error& error) {
      next_failed_[static_cast<std::size_t>(number)] = true;
      if (!is_about_memory(error)) outcome.wrong = std::string("the next call threw ") + error.what();
    }
    ended_.arrive_and_wait();
  }

  void warm_up(const Step& step, Rank& rank) {
    if (std::string_view(step.name).find("close") != std::string_view::npos) {
      rank.child = rank.comm->dup();
      return;
    }
    for (int i = 0; i < 20; ++i) step.call(rank);
  }

  // Returns whether an allocation was refused; false means that the step has no more allocations.
  template <class Body>
  bool run_job(const char* name, std::int64_t nth, const Body& body) {
    current_step = name;
    current_allocation = nth;
    outcomes_ = {};
    next_failed_ = {};
    const auto begin = std::chrono::steady_clock::now();
    const auto store = std::make_shared<MemoryStore>();
    std::array<std::thread, kWorld> ranks;
    for (int rank = 0; rank < kWorld; ++rank) {
      ranks[static_cast<std::size_t>(rank)] = std::thread([&, rank] { body(rank, store); });
    }
    for (std::thread& rank : ranks) rank.join();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience) << name << ", allocation " << nth;
    EXPECT_EQ(next_failed_[0], next_failed_[1]) << name << ", allocation " << nth << ": lost on one rank alone";
    for (const Outcome& outcome : outcomes_) {
      EXPECT_EQ(outcome.wrong, "") << name << ", allocation " << nth << ", rank " << &outcome - outcomes_.data();
    }
    return was_refused_;
  }

  void run_init(int number, std::int64_t nth, const std::shared_ptr<Store>& store);
  void run_end(int number, std::int64_t nth, const std::shared_ptr<Store>& store);
  void run_steps(const std::vector<Step>& steps);
  // Runs jobs until the step has no allocation left to refuse.
  template <class Body>
  void run_all(const char* name, const Body& body, std::int64_t share = 3);

  std::array<Outcome, kWorld> outcomes_;
  std::array<bool, kWorld> next_failed_{};
  bool was_refused_ = false;
  std::barrier<> ended_, begun_;
};

bool tries_all() { return std::getenv("MEMORY_SOAK") != nullptr; }

// Draws the allocations of a step to refuse: all of the first ones, then ever fewer.
class Draw {
 public:
  // Each number is larger than the last by up to 1/share of it.
  explicit Draw(std::int64_t share) : share_(share) {}
  std::int64_t next() {
    nth_ += tries_all() || nth_ < kFirst ? 1 : std::uniform_int_distribution<std::int64_t>(1, nth_ / share_)(random_);
    return nth_;
  }

 private:
  static constexpr std::int64_t kFirst = 4;
  const std::int64_t share_;
  std::int64_t nth_ = 0;
  std::mt19937_64 random_{1};
};

// A peer waits for a rank that never comes no longer than its own deadline. If all ranks came, the job goes on.
void RefusedMemory::run_init(int number, std::int64_t nth, const std::shared_ptr<Store>& store) {
  Outcome& outcome = outcomes_[static_cast<std::size_t>(number)];
  InitOptions init = init_options(number, store);
  init.init_timeout = kShortInitDeadline;
  std::optional<Communicator> comm;
  while_refusing(number, nth, [&] {
    try {
      comm = qccl::init(init);
    } catch (const Error& error) {
      outcome.is_lost = true;
    } catch (const std::exception& other) {
      outcome.wrong = std::string("threw no Error but ") + other.what();
    }
  });
  if (!comm) return;
  if (outcomes_[0].is_lost || outcomes_[1].is_lost) return;
  Rank rank(std::move(*comm));
  all_reduce(rank, kLarge, rank.sra);
  if (!rank.is_sum(kLarge)) outcome.wrong = "has a wrong result";
}

// Drops the last handle, which ends the context with its connections and threads.
void RefusedMemory::run_end(int number, std::int64_t nth, const std::shared_ptr<Store>& store) {
  Rank rank(qccl::init(init_options(number, store)));
  all_reduce(rank, kLarge, rank.sra);
  while_refusing(number, nth, [&] { rank.comm.reset(); });
}

template <class Body>
void RefusedMemory::run_all(const char* name, const Body& body, std::int64_t share) {
  std::set_terminate(say_where_and_abort);
  Draw draw(share);
  bool goes_on = true;
  while (goes_on && !HasFailure()) {
    const std::int64_t nth = draw.next();
    goes_on = run_job(name, nth, [&](int rank, const auto& store) { body(rank, nth, store); });
  }
  EXPECT_FALSE(HasFailure()) << "at '" << name << "'";
}

void RefusedMemory::run_steps(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    run_all(step.name, [&](int rank, std::int64_t nth, const auto& store) { run_rank(rank, step, nth, store); });
  }
}

INSTANTIATE_TEST_SUITE_P(All, RefusedMemory, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

TEST_P(RefusedMemory, in_a_reduction_is_an_error) { run_steps(reductions()); }
TEST_P(RefusedMemory, in_a_movement_is_an_error) { run_steps(movements()); }
TEST_P(RefusedMemory, at_the_end_ends_nothing_else) {
  run_all("end", [&](int rank, std::int64_t nth, const auto& store) { run_end(rank, nth, store); });
}
TEST_P(RefusedMemory, in_init_is_an_error) {
  // Only a few, because each takes until the deadline.
  run_all(
      "init", [&](int rank, std::int64_t nth, const auto& store) { run_init(rank, nth, store); }, 1);
}
TEST_P(RefusedMemory, in_messages_and_groups_is_an_error) { run_steps(messages_and_groups()); }

}  // namespace
}  // namespace qccl::testing
