#include "sim/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/digest/digest.h"
#include "plan/algorithms/registry.h"

namespace qccl::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kCallTimeout{10};
constexpr seconds kShrinkTimeout{20};
constexpr seconds kSlack{4};  // a slow rank, or one that goes on, sees its deadline late
constexpr int kMostShrinks = 300;

SimOptions network_of(std::uint64_t seed) {
  SimOptions options{.seed = seed, .slice_bytes = 8192, .peer_timeout = seconds(6)};
  options.link.latency = microseconds(20 + seed % 7 * 30);
  options.link.jitter = microseconds(seed % 3 * 100);
  options.hosts = {0, 0, 0, 1, 1, 1};
  return options;
}

template <class Number>
std::size_t at(Number rank) {
  return static_cast<std::size_t>(rank);
}

}  // namespace

Gradients::Gradients(Random& random, std::size_t most_elements) : count_(1 + random.below(most_elements)) {
  static const std::vector<std::string> kCodecs{"minmax:bits=2", "minmax:bits=5,bucket_size=64", "sign",
                                                "topk:density=0.1", "int:bits=4,block=64,rounding=stochastic"};
  const auto algorithms = plan::algorithms_of(Collective::all_reduce);
  options_.compression = Compression::parse(kCodecs[random.below(kCodecs.size())]);
  options_.algorithm = algorithms[random.below(algorithms.size())];
  options_.op = random.below(2) == 0 ? ReduceOp::sum : ReduceOp::avg;
  options_.error_feedback = ErrorFeedback(count_);  // says that there is one
}

std::vector<float> Gradients::of(int rank, std::size_t step, int bucket) const {
  Random random((at(rank) * 1000 + step) * Gradients::kBuckets + at(bucket));
  std::vector<float> values(count_);
  for (float& value : values) value = static_cast<float>(random.below(20001)) / 10000 - 1;
  return values;
}

engine::ResolvedCall Gradients::call(std::size_t world) const {
  return make_call(Collective::all_reduce, count_, DataType::float32, static_cast<int>(world), options_);
}

Training::Training(std::uint64_t seed, int steps, FaultKinds kinds)
    : random_(seed),
      world_(static_cast<int>(3 + random_.below(4)), network_of(seed)),
      steps_(at(steps)),
      kinds_(kinds),
      gradients_(random_, kinds == FaultKinds::kills ? 9000 : 3000),
      trainers_(at(world_.size())),
      faults_(random_, world_, kinds, [this](int rank) { return trainer(rank).phase != TrainerPhase::is_out; }) {
  for (Trainer& trainer : trainers_) {
    trainer.members = world_group(world_).ranks;
    for (int bucket = 0; bucket < Gradients::kBuckets; ++bucket) trainer.feedback.emplace_back(gradients_.count());
    trainer.gradients.resize(Gradients::kBuckets);
  }
  faults_.plan();
}

// ---- the ranks

std::string Training::run() {
  try {
    run_ranks();
    return problem_.empty() ? check() : problem_;
  } catch (const Error& error) {
    return error.what();
  }
}

void Training::run_ranks() {
  for (int rank = 0; rank < world_.size(); ++rank) begin_step(rank);
  while (problem_.empty() && !is_over()) {
    let_time_pass();
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (may_act(rank)) act(rank);
    }
    look_for_hanging();
  }
}

void Training::let_time_pass() {
  for (const int rank : faults_.resume_due()) {
    trainer(rank).deadline = std::max(trainer(rank).deadline, world_.now() + kSlack);
  }
  TimePoint next = std::min(faults_.next_resume(), world_.now() + seconds(60));
  for (const Trainer& trainer : trainers_) {
    if (trainer.pauses_until > world_.now()) next = std::min(next, trainer.pauses_until);
  }
  const auto one_may_act = [this] {
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (may_act(rank)) return true;
    }
    return false;
  };
  world_.run_until(one_may_act, next - world_.now());
}

bool Training::may_act(int rank) {
  const Trainer& trainer = trainers_[at(rank)];
  return world_.network().running(rank) && !trainer.has_ended() && world_.now() >= trainer.pauses_until &&
         std::ranges::all_of(trainer.works, [](const SimWork& work) { return work->done(); });
}

bool Training::is_over() {
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (!faults_.has_died(rank) && !trainer(rank).has_ended()) return false;
  }
  return true;
}

void Training::look_for_hanging() {
  for (int rank = 0; rank < world_.size(); ++rank) {
    const Trainer& waiting = trainer(rank);
    const bool waits = world_.network().running(rank) && !waiting.has_ended() && !may_act(rank);
    if (!waits || world_.now() <= std::max(waiting.deadline, waiting.pauses_until)) continue;
    problem_ = fmt::format("rank {} has no verdict by its deadline", rank);
  }
}

void Training::expect_time(Trainer& trainer, Nanoseconds timeout) {
  trainer.deadline = world_.now() + timeout + kSlack;
  if (kinds_ == FaultKinds::kills || random_.below(8) > 0) return;
  trainer.pauses_until = world_.now() + milliseconds(random_.below(3000));
}

void Training::begin_step(int rank) {
  Trainer& trainer = trainers_[at(rank)];
  const std::size_t step = trainer.done.size();
  if (step == steps_) return begin_number(rank, TrainerPhase::ends, 0);
  trainer.phase = TrainerPhase::steps;
  Buckets& before = trainer.residuals[step];
  before.clear();
  for (const ErrorFeedback& feedback : trainer.feedback) {
    before.emplace_back(feedback.residual().begin(), feedback.residual().end());
  }
  trainer.works.clear();
  const auto call = gradients_.call(trainer.members.size());
  for (int bucket = 0; bucket < Gradients::kBuckets; ++bucket) {
    std::vector<float>& values = trainer.gradients[at(bucket)] = gradients_.of(rank, step, bucket);
    auto* const memory = reinterpret_cast<std::byte*>(values.data());
    trainer.works.push_back(world_.post(rank, call,
                                        {.input = memory,
                                         .output = memory,
                                         .timeout = kCallTimeout,
                                         .group = trainer.group,
                                         .feedback = trainer.feedback[at(bucket)],
                                         .keep_input = true}));
  }
  expect_time(trainer, kCallTimeout);
}

void Training::begin_shrink(int rank) {
  Trainer& trainer = trainers_[at(rank)];
  faults_.plan_after_failure();
  trainer.phase = TrainerPhase::shrinks;
  trainer.shrinking = world_.shrink(rank, {.timeout = kShrinkTimeout, .group = trainer.group});
  trainer.works = {trainer.shrinking.work};
  expect_time(trainer, kShrinkTimeout);
}

// An all_reduce of the greatest number.
void Training::begin_number(int rank, TrainerPhase phase, std::uint64_t number) {
  Trainer& trainer = trainers_[at(rank)];
  trainer.phase = phase;
  trainer.number = number;
  auto* const memory = reinterpret_cast<std::byte*>(&trainer.number);
  const auto call = make_call(Collective::all_reduce, 1, DataType::uint64, static_cast<int>(trainer.members.size()),
                              {.op = ReduceOp::max});
  trainer.works = {
      world_.post(rank, call, {.input = memory, .output = memory, .timeout = kCallTimeout, .group = trainer.group})};
  expect_time(trainer, kCallTimeout);
}

void Training::act(int rank) {
  Trainer& trainer = trainers_[at(rank)];
  const bool has_failed =
      std::ranges::any_of(trainer.works, [](const SimWork& work) { return work->failure() != nullptr; });
  switch (trainer.phase) {
    case TrainerPhase::steps: return end_step(rank);
    case TrainerPhase::shrinks: return end_shrink(rank);
    case TrainerPhase::settles: return has_failed ? begin_shrink(rank) : settle(rank);
    case TrainerPhase::ends: return has_failed ? begin_shrink(rank) : leave(rank, TrainerPhase::has_left);
    case TrainerPhase::has_left:
    case TrainerPhase::is_out: break;
  }
}

void Training::end_step(int rank) {
  Trainer& trainer = trainers_[at(rank)];
  const std::size_t step = trainer.done.size();
  bool has_failed = false;
  for (int bucket = 0; bucket < Gradients::kBuckets; ++bucket) {
    if (!trainer.works[at(bucket)]->failure()) continue;
    has_failed = true;
    if (trainer.gradients[at(bucket)] == gradients_.of(rank, step, bucket)) continue;
    problem_ = fmt::format("rank {}: a failed call has not given its input back", rank);
  }
  if (has_failed) return begin_shrink(rank);
  trainer.done.push_back({trainer.members, trainer.gradients});
  faults_.plan();
  begin_step(rank);
}

void Training::end_shrink(int rank) {
  Trainer& trainer = trainers_[at(rank)];
  if (++counts_.shrinks > kMostShrinks) problem_ = "ranks shrink again and again";
  if (const auto& failure = trainer.shrinking.work->failure()) {
    if (failure->kind == ErrorKind::deadline_exceeded) return begin_shrink(rank);
    if (failure->kind != ErrorKind::aborted) problem_ = failure->message;
    return leave(rank, TrainerPhase::is_out);
  }
  const std::uint64_t old = trainer.group;
  auto& successors = successors_[old];
  trainer.members = trainer.shrinking.then(trainer.members);
  successors[rank] = trainer.members;
  for (const auto& [other, members] : successors) {
    const bool is_alive = std::ranges::any_of(members, [this](int member) { return !faults_.has_died(member); });
    if (members == trainer.members || !is_alive) continue;
    problem_ = fmt::format("ranks {} and ranks {} go on", fmt::join(members, ", "), fmt::join(trainer.members, ", "));
  }
  if (trainer.members.size() == 1)
    return leave(rank, TrainerPhase::is_out);  // the counter of its feedback would stand still
  for (const int member : trainer.members) trainer.group = digest(at(member), trainer.group);
  world_.open_group_on(rank, trainer.group, "shrunk", trainer.members);
  world_.engine(rank).groups().close(old);
  trainer.told[trainer.group] = trainer.done.size();
  faults_.plan_after_failure();
  begin_number(rank, TrainerPhase::settles, trainer.done.size());
}

// A rank that is behind takes the sums over from one that is ahead.
void Training::settle(int rank) {
  Trainer& trainer = trainers_[at(rank)];
  const std::uint64_t newest = trainer.number;
  const std::size_t step = trainer.done.size();
  if (newest > step) {
    ++counts_.disagreements;
    const auto ahead = std::ranges::find_if(trainer.members, [&](int member) {
      const auto& told = trainers_[at(member)].told;
      const auto found = told.find(trainer.group);
      return found != told.end() && found->second == newest;
    });
    if (newest > step + 1 || ahead == trainer.members.end()) {
      problem_ = fmt::format("rank {} is in step {}, another in {}", rank, step, newest);
      return;
    }
    trainer.done.push_back(trainers_[at(*ahead)].done[step]);
  }
  for (ErrorFeedback& feedback : trainer.feedback) feedback.settle(newest);
  begin_step(rank);
}

void Training::leave(int rank, TrainerPhase phase) {
  Trainer& trainer = trainers_[at(rank)];
  trainer.phase = phase;
  counts_.left_out += phase == TrainerPhase::is_out ? 1 : 0;
  world_.engine(rank).groups().close(trainer.group);
  world_.engine(rank).say_goodbye();
}

// ---- the end

TrainingCounts Training::counts() const {
  TrainingCounts counts = counts_;
  counts.faults = faults_.counts();
  return counts;
}

std::string Training::check() {
  const Trainer* first = nullptr;
  for (const Trainer& trainer : trainers_) {
    if (trainer.phase != TrainerPhase::has_left) continue;
    if (first != nullptr && trainer.done != first->done) return "two ranks have applied different sums";
    first = &trainer;
  }
  world_.settle();
  for (int rank = 0; rank < world_.size(); ++rank) {
    // A rank that is out may hold frames of a group in which a rank that has been stopped meanwhile counts on it.
    const std::size_t held = world_.network().endpoint(rank).held().frames;
    const bool is_well = world_.network().running(rank) && trainer(rank).phase == TrainerPhase::has_left;
    if (is_well && held > 0) return fmt::format("rank {} has not given {} frames back", rank, held);
  }
  if (first == nullptr) ++counts_.given_up;
  return first == nullptr ? "" : check_conservation(first->done, trainers_, gradients_);
}

std::vector<float> Trainer::residual_after(std::size_t steps, int bucket) const {
  if (const auto found = residuals.find(steps); found != residuals.end()) return found->second[at(bucket)];
  ErrorFeedback own = feedback[at(bucket)];
  if (!own.state()->is_busy()) own.settle(steps);
  const float* const residual = own.state()->residual();
  return {residual, residual + own.size()};
}

std::string check_conservation(const std::vector<TrainingStep>& done, const std::vector<Trainer>& trainers,
                               const Gradients& gradients) {
  using Sums = std::vector<double>;
  const auto add = [](Sums& sums, const std::vector<float>& values, double factor) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += factor * static_cast<double>(values[i]);
  };
  for (int bucket = 0; bucket < Gradients::kBuckets; ++bucket) {
    Sums wanted(gradients.count()), found(gradients.count());
    std::vector<std::size_t> steps_of(trainers.size());
    for (std::size_t step = 0; step < done.size(); ++step) {
      const auto& [members, sums] = done[step];
      add(found, sums[at(bucket)], gradients.factor(members.size()));
      for (const int rank : members) {
        ++steps_of[at(rank)];
        add(wanted, gradients.of(rank, step, bucket), 1);
      }
    }
    for (std::size_t rank = 0; rank < trainers.size(); ++rank) {
      add(found, trainers[rank].residual_after(steps_of[rank], bucket), 1);
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (std::abs(found[i] - wanted[i]) <= 1e-4) continue;
      return fmt::format("element {}: applied and held back {} of {}", i, found[i], wanted[i]);
    }
  }
  return "";
}

}  // namespace qccl::testing
