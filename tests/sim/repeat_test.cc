// Training that loses ranks, over the simulated network: each step sums gradients in place, compressed, with error
// feedback. Ranks are killed at any frame. The survivors shrink, settle on the step of the one that is ahead, and go on
// with the gradients that failed calls gave back. What was applied and what is held back adds up to what was put in.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/options.h"
#include "plan/algorithms/registry.h"
#include "support/sim_call.h"

namespace qccl::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

using Values = std::vector<float>;
using Sums = std::vector<double>;

constexpr int kBuckets = 2;

// A rank's part of the training. Each bucket of the gradient has its own call and error feedback.
struct Trainer {
  int step = 0;                          // that it is in
  std::vector<std::vector<int>> worlds;  // of each step that it has applied
  Sums applied;                          // outputs in units of the sum, all buckets one after the other
  std::vector<ErrorFeedback> feedback;
  std::vector<Values> gradients;
  std::vector<SimWork> works;                    // of this step
  std::map<int, std::vector<Values>> residuals;  // before each step, for ranks that die
  bool has_failed = false;
};

std::size_t at(int index) { return static_cast<std::size_t>(index); }

SimOptions network_of(std::uint64_t seed) {
  SimOptions options{.seed = seed, .slice_bytes = 8192};
  options.link.latency = microseconds(20 + seed % 7 * 30);
  options.link.jitter = microseconds(seed % 3 * 100);
  options.hosts = {0, 0, 0, 1, 1, 1};
  return options;
}

class Training {
 public:
  explicit Training(std::uint64_t seed)
      : random_(seed),
        world_(static_cast<int>(3 + random_.below(4)), network_of(seed)),
        count_(1 + random_.below(9000)) {
    for (int rank = 0; rank < world_.size(); ++rank) {
      members_.push_back(rank);
      Trainer& trainer = trainers_.emplace_back();
      trainer.applied.resize(kBuckets * count_);
      for (int bucket = 0; bucket < kBuckets; ++bucket) trainer.feedback.emplace_back(count_);
      trainer.gradients.resize(kBuckets);
    }
    draw_call();
    world_.network().set_tap([this](int, int, Bytes) {
      if (frames_left_ > 0 && --frames_left_ == 0) kill_one();
    });
  }

  // Returns what went wrong, or "".
  std::string run(int steps) {
    steps_ = steps;
    for (const int rank : members_) begin_step(rank);
    plan_kill();
    while (!std::ranges::all_of(live_members(), [&](int rank) { return trainers_[at(rank)].step == steps_; })) {
      if (!world_.run_until([this] { return any_may_go_on(); }, seconds(60))) return "the ranks hang";
      for (const int rank : live_members()) go_on(rank);
      const auto live = live_members();
      if (std::ranges::all_of(live, [&](int rank) { return is_over(trainers_[at(rank)]); })) {
        if (std::string problem = recover(); !problem.empty()) return problem;
      }
      if (!problem_.empty()) return problem_;
    }
    return check();
  }

  int disagreements() const { return disagreements_; }
  int kills() const { return kills_; }

 private:
  void draw_call() {
    static const std::vector<std::string> kCodecs{"minmax:bits=2", "minmax:bits=5,bucket_size=64", "sign",
                                                  "topk:density=0.1", "int:bits=4,block=64,rounding=stochastic"};
    const auto algorithms = plan::algorithms_of(Collective::all_reduce);
    options_.compression = Compression::parse(kCodecs[random_.below(kCodecs.size())]);
    options_.algorithm = algorithms[random_.below(algorithms.size())];
    options_.op = random_.below(2) == 0 ? ReduceOp::sum : ReduceOp::avg;
    options_.error_feedback = ErrorFeedback(count_);  // says that there is one
  }

  Values gradient(int rank, int step, int bucket) const {
    Random random(static_cast<std::uint64_t>((rank * 1000 + step) * kBuckets + bucket));
    Values values(count_);
    for (float& value : values) value = static_cast<float>(random.below(20001)) / 10000 - 1;
    return values;
  }

  std::vector<int> live_members() {
    std::vector<int> live;
    std::ranges::copy_if(members_, std::back_inserter(live),
                         [this](int rank) { return world_.network().running(rank); });
    return live;
  }

  void plan_kill() { frames_left_ = random_.below(2) == 0 ? 1 + random_.below(300) : 0; }

  void kill_one() {
    const auto live = live_members();
    if (live.size() < 3) return;  // among one rank nothing is compressed, and the counter would stand still
    ++kills_;
    world_.network().kill(live[random_.below(live.size())]);
  }

  bool is_over(const Trainer& trainer) const { return trainer.has_failed || trainer.step == steps_; }

  bool any_may_go_on() {
    const auto may_go_on = [this](int rank) {
      const Trainer& trainer = trainers_[at(rank)];
      return !is_over(trainer) && std::ranges::all_of(trainer.works, [](const SimWork& work) { return work->done(); });
    };
    const auto live = live_members();
    return std::ranges::any_of(live, may_go_on) ||
           std::ranges::all_of(live, [this](int rank) { return is_over(trainers_[at(rank)]); });
  }

  void begin_step(int rank) {
    Trainer& trainer = trainers_[at(rank)];
    if (trainer.step == steps_) return;
    std::vector<Values>& before = trainer.residuals[trainer.step];
    before.clear();
    for (const ErrorFeedback& feedback : trainer.feedback) {
      before.emplace_back(feedback.residual().begin(), feedback.residual().end());
    }
    trainer.works.clear();
    const auto call =
        make_call(Collective::all_reduce, count_, DataType::float32, static_cast<int>(members_.size()), options_);
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      Values& values = trainer.gradients[at(bucket)] = gradient(rank, trainer.step, bucket);
      auto* const memory = reinterpret_cast<std::byte*>(values.data());
      trainer.works.push_back(world_.post(rank, call,
                                          {.input = memory,
                                           .output = memory,
                                           .timeout = seconds(10),
                                           .group = group_,
                                           .feedback = trainer.feedback[at(bucket)],
                                           .keep_input = true}));
    }
  }

  // A rank whose calls have ended applies their sums and begins the next step without waiting for the others.
  void go_on(int rank) {
    Trainer& trainer = trainers_[at(rank)];
    const bool has_ended = std::ranges::all_of(trainer.works, [](const SimWork& work) { return work->done(); });
    if (is_over(trainer) || !has_ended) return;
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      if (!trainer.works[at(bucket)]->failure()) continue;
      trainer.has_failed = true;
      if (trainer.gradients[at(bucket)] != gradient(rank, trainer.step, bucket)) {
        problem_ = "a failed call has not given its input back";
      }
    }
    if (trainer.has_failed) return;
    const double factor = options_.op == ReduceOp::avg ? static_cast<double>(members_.size()) : 1;
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      const Values& sum = trainer.gradients[at(bucket)];
      for (std::size_t i = 0; i < count_; ++i) {
        trainer.applied[at(bucket) * count_ + i] += factor * static_cast<double>(sum[i]);
      }
    }
    trainer.worlds.push_back(members_);
    ++trainer.step;
    plan_kill();
    begin_step(rank);
  }

  // The members that live make a new group and settle on the step of the one that is ahead.
  std::string recover() {
    std::map<int, SimWorld::Shrinking> shrinkings;
    for (const int rank : live_members()) shrinkings.emplace(rank, world_.shrink(rank, {.group = group_}));
    const auto have_verdicts = [&] {
      return std::ranges::all_of(live_members(), [&](int rank) { return shrinkings.at(rank).work->done(); });
    };
    if (!world_.run_until(have_verdicts, seconds(60))) return "shrink() hangs";
    const auto live = live_members();
    for (const int rank : live) {
      if (const auto& failure = shrinkings.at(rank).work->failure()) return failure->message;
    }
    members_ = shrinkings.at(live.front()).then(members_);
    ++group_;
    world_.open_group(group_, fmt::format("group {}", group_), members_);
    const int newest = *std::ranges::max_element(live, {}, [this](int rank) { return trainers_[at(rank)].step; });
    for (const int rank : live) settle(trainers_[at(rank)], trainers_[at(newest)]);
    for (const int rank : live) begin_step(rank);
    plan_kill();
    return problem_;
  }

  void settle(Trainer& trainer, const Trainer& newest) {
    const bool is_behind = trainer.step < newest.step;
    if (newest.step - trainer.step > 1) problem_ = "a rank is two steps ahead of another";
    disagreements_ += is_behind ? 1 : 0;
    for (ErrorFeedback& feedback : trainer.feedback) feedback.settle(static_cast<std::uint64_t>(newest.step));
    trainer.applied = newest.applied;
    trainer.worlds = newest.worlds;
    trainer.step = newest.step;
    trainer.has_failed = false;
  }

  // What the rank owes after the first `steps` steps: it may have died in the last of them, or in the one after those.
  Values residual_after(int rank, int steps, int bucket) const {
    const Trainer& trainer = trainers_[at(rank)];
    if (const auto found = trainer.residuals.find(steps); found != trainer.residuals.end()) {
      return found->second[at(bucket)];
    }
    ErrorFeedback feedback = trainer.feedback[at(bucket)];
    if (!feedback.state()->is_busy()) feedback.settle(static_cast<std::uint64_t>(steps));
    float* const residual = feedback.state()->residual();
    return {residual, residual + feedback.size()};
  }

  std::string check() {
    const auto live = live_members();
    const Trainer& first = trainers_[at(live.front())];
    for (const int rank : live) {
      if (trainers_[at(rank)].applied != first.applied) return fmt::format("rank {} has applied other sums", rank);
    }
    Sums wanted(kBuckets * count_), found = first.applied;
    std::vector<int> steps_of(static_cast<std::size_t>(world_.size()));
    for (std::size_t step = 0; step < first.worlds.size(); ++step) {
      for (const int rank : first.worlds[step]) {
        ++steps_of[at(rank)];
        for (int bucket = 0; bucket < kBuckets; ++bucket) {
          add_bucket(wanted, bucket, gradient(rank, static_cast<int>(step), bucket));
        }
      }
    }
    for (int rank = 0; rank < world_.size(); ++rank) {
      for (int bucket = 0; bucket < kBuckets; ++bucket) {
        add_bucket(found, bucket, residual_after(rank, steps_of[at(rank)], bucket));
      }
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (std::abs(found[i] - wanted[i]) > 1e-4) {
        return fmt::format("element {}: applied and held back {} of {}", i, found[i], wanted[i]);
      }
    }
    return "";
  }

  void add_bucket(Sums& sums, int bucket, const Values& values) const {
    for (std::size_t i = 0; i < count_; ++i) sums[at(bucket) * count_ + i] += static_cast<double>(values[i]);
  }

  Random random_;
  SimWorld world_;
  const std::size_t count_;
  CallOptions options_;
  std::vector<int> members_;
  std::vector<Trainer> trainers_;
  std::uint64_t group_ = kSimGroup;
  int steps_ = 0;
  std::uint64_t frames_left_ = 0;  // until a rank is killed; 0: none will be
  int disagreements_ = 0;          // ranks that failed in a step that another had ended well
  int kills_ = 0;
  std::string problem_;
};

constexpr std::uint64_t kFirstSeed = 20261126;
constexpr int kSteps = 20;

// 60 x 20 steps by default.
TEST(Repeat, over_a_thousand_steps_what_was_applied_and_what_is_held_back_add_up) {
  const std::uint64_t trainings = std::stoull(environment("REPEAT_PROGRAMS").value_or("60"));
  const std::uint64_t first = std::stoull(environment("REPEAT_SEED").value_or(std::to_string(kFirstSeed)));
  int kills = 0, disagreements = 0;
  for (std::uint64_t seed = first; seed < first + trainings; ++seed) {
    Training training(seed);
    ASSERT_EQ(training.run(kSteps), "") << "to replay: REPEAT_PROGRAMS=1 REPEAT_SEED=" << seed
                                        << " build/tests/qccl_test_sim --gtest_filter='Repeat.*'";
    kills += training.kills();
    disagreements += training.disagreements();
  }
  RecordProperty("kills", kills);
  RecordProperty("disagreements", disagreements);
  if (trainings < 60) return;
  EXPECT_GT(kills, 60);
  EXPECT_GT(disagreements, 0) << "no rank saw a call end well that failed on another";
}

}  // namespace
}  // namespace qccl::testing
