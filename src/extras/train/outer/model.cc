#include "extras/train/outer/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/digest/digest.h"
#include "base/log.h"

namespace qccl::train {
namespace {

void check(const OuterOptions& options) {
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) throw Error({.kind = ErrorKind::invalid_argument, .message = "QCCL: outer loop: " + what});
  };
  require(options.fragments >= 1, "fragments must be at least 1");
  require(options.blend >= 0 && options.blend <= 1, fmt::format("blend is 0 to 1, not {}", options.blend));
  require(options.error_decay >= 0 && options.error_decay <= 1,
          fmt::format("error_decay is 0 to 1, not {}", options.error_decay));
  if (options.every_time) return require(options.every_time->count() > 0, "every_time must be positive");
  require(options.every >= options.fragments,
          fmt::format("every = {} steps are too few for {} fragments", options.every, options.fragments));
  require(options.delay <= options.every / options.fragments,
          fmt::format("a delay of {} steps is more than the {} between two rounds: every / fragments", options.delay,
                      options.every / options.fragments));
}

// docs/outer.md has the figures.
void advise(const OuterOptions& options) {
  const Compression& chosen = options.compression;
  if (chosen.name() != "int" || chosen.setting("bits") != 2) return;
  log(LogLevel::warning,
      fmt::format("outer loop: {} sends only 0 and the largest magnitude of a block, and holds back twice a delta: "
                  "h4:bits=2 takes as many bytes and holds back half of one",
                  chosen.to_string()));
}

// The program may have changed the rate since the ranks compared it.
class RateOfStep {
 public:
  RateOfStep(OuterOptimizer& optimizer, double rate) : optimizer_(optimizer), before_(optimizer.learning_rate()) {
    optimizer_.set_learning_rate(rate);
  }
  ~RateOfStep() { optimizer_.set_learning_rate(before_); }
  RateOfStep(const RateOfStep&) = delete;
  RateOfStep& operator=(const RateOfStep&) = delete;

 private:
  OuterOptimizer& optimizer_;
  const double before_;
};

}  // namespace

OuterModel::OuterModel(std::vector<OuterParameter> parameters, const OuterOptions& options)
    : parameters_(std::move(parameters)), options_(options), optimizer_(options.optimizer) {
  check(options_);
  advise(options_);
  if (optimizer_ == nullptr) optimizer_ = std::make_shared<OuterSgd>();
  for (auto& members : fragment_members(parameters_, options_.fragments)) {
    OuterFragment& fragment = fragments_.emplace_back();
    std::size_t count = 0;
    for (const std::size_t member : members) {
      fragment.begins.push_back(count);
      count += parameters_[member].count;
      if (!parameters_[member].is_averaged) fragment.deltas = count;
    }
    fragment.members = std::move(members);
    fragment.global.resize(count);
    if (!options_.compression.is_none() && options_.error_feedback) {
      fragment.residual.resize(fragment.deltas, options_.bfloat16_residual);
    }
    load_own(fragment, fragment.global);
    largest_ = std::max(largest_, count);
  }
  settings_ = make_settings();
}

bool OuterModel::is_averaging(double rate) const {
  const auto* sgd = dynamic_cast<const OuterSgd*>(optimizer_.get());
  return options_.compression.is_none() && sgd != nullptr && sgd->options().momentum == 0 && rate == 1;
}

std::uint64_t OuterModel::make_settings() const {
  std::uint64_t all = digest(optimizer_->settings(), digest(options_.compression.to_string()));
  const std::uint64_t numbers[] = {options_.every_time ? 0 : options_.every,
                                   options_.every_time ? 1u : 0u,
                                   options_.fragments,
                                   options_.delay,
                                   std::bit_cast<std::uint64_t>(options_.blend),
                                   options_.error_feedback ? 1u : 0u,
                                   std::bit_cast<std::uint64_t>(options_.error_decay),
                                   *options_.is_weighted ? 1u : 0u};
  for (const std::uint64_t number : numbers) all = digest(number, all);
  for (const OuterFragment& fragment : fragments_) all = digest(std::uint64_t{fragment.deltas}, all);
  for (const OuterParameter& parameter : parameters_) {
    all = digest(parameter.name, all);
    all = digest(std::uint64_t{parameter.count}, all);
    all = digest(std::uint64_t{parameter.is_averaged}, all);
  }
  return all;
}

void OuterModel::load_own(const OuterFragment& fragment, std::span<float> to) const {
  for (std::size_t i = 0; i < fragment.members.size(); ++i) {
    const OuterParameter& parameter = parameters_[fragment.members[i]];
    parameter.load(to.subspan(fragment.begins[i], parameter.count));
  }
}

void OuterModel::take_sent(const OuterFragment& fragment, double rate, std::span<const float> own,
                           std::span<float> sent) const {
  const std::size_t deltas = is_averaging(rate) ? 0 : fragment.deltas;
  for (std::size_t i = 0; i < deltas; ++i) sent[i] = fragment.global[i] - own[i];
  std::ranges::copy(own.subspan(deltas), sent.subspan(deltas).begin());
}

void OuterModel::step_global(std::size_t index, double rate, std::span<float> average) {
  OuterFragment& fragment = fragments_[index];
  const auto global = std::span(fragment.global);
  const std::size_t stepped = is_averaging(rate) ? 0 : fragment.deltas;
  if (stepped > 0) {
    const RateOfStep while_stepping(*optimizer_, rate);
    optimizer_->step(index, global.first(stepped), average.first(stepped));
  }
  std::ranges::copy(average.subspan(stepped), global.subspan(stepped).begin());
}

void OuterModel::follow(const OuterFragment& fragment, std::span<const float> next, std::span<float> scratch) const {
  for (std::size_t i = 0; i < fragment.members.size(); ++i) {
    const OuterParameter& parameter = parameters_[fragment.members[i]];
    const std::size_t begin = fragment.begins[i];
    if (parameter.is_averaged) {
      parameter.store(next.subspan(begin, parameter.count));
      continue;
    }
    const auto own = scratch.first(parameter.count);
    parameter.load(own);
    for (std::size_t j = 0; j < own.size(); ++j) own[j] += next[begin + j] - fragment.global[begin + j];
    parameter.store(own);
  }
}

void OuterModel::blend(const OuterFragment& fragment, float kept, std::span<float> scratch) const {
  for (std::size_t i = 0; i < fragment.members.size(); ++i) {
    const OuterParameter& parameter = parameters_[fragment.members[i]];
    const auto global = std::span(fragment.global).subspan(fragment.begins[i], parameter.count);
    if (kept == 0) {
      parameter.store(global);
      continue;
    }
    const auto own = scratch.first(parameter.count);
    parameter.load(own);
    for (std::size_t j = 0; j < own.size(); ++j) own[j] = kept * own[j] + (1 - kept) * global[j];
    parameter.store(own);
  }
}

}  // namespace qccl::train
