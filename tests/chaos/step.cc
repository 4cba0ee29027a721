#include "chaos/step.h"

#include <fmt/format.h>

#include <cmath>

#include "base/digest/digest.h"

namespace qccl::testing {

struct Steps::Kind {
  const char* compression;  // "": none
  std::size_t count;
  bool is_shared = false;  // in memory from allocate()
  double tolerance = 0;    // between the inputs and the result plus the residuals
};

namespace {

// Integers from -1023 to 1024, which depend on the process, the step and the element.
class Inputs {
 public:
  Inputs(std::uint64_t id, std::uint64_t step)
      : factor_(static_cast<std::uint32_t>(digest(id, step)) | 1U),
        offset_(static_cast<std::uint32_t>(digest(step, id))) {}
  float operator[](std::size_t i) const {
    const std::uint32_t hash = (static_cast<std::uint32_t>(i) * factor_ + offset_) >> 8U;
    return static_cast<float>(static_cast<std::int32_t>(hash & 2047U) - 1023);
  }

 private:
  std::uint32_t factor_;
  std::uint32_t offset_;
};

std::vector<float> sum_of_inputs(std::size_t count, std::uint64_t step, const std::vector<std::uint64_t>& ids) {
  std::vector<float> sum(count);
  for (const std::uint64_t id : ids) {
    const Inputs inputs(id, step);
    for (std::size_t i = 0; i < count; ++i) sum[i] += inputs[i];
  }
  return sum;
}

void require(bool holds, std::uint64_t step, const std::string& what) {
  if (!holds) throw Problem{fmt::format("step {}: {}", step, what)};
}

}  // namespace

const std::vector<Steps::Kind>& Steps::kinds() {
  static const std::vector<Kind> kinds{
      {"", 1'000},         {"cast:type=bf16", 100'000},
      {"", 400'000},       {"topk:density=0.1,values=fp32", 60'000},
      {"", 300'000, true}, {"minmax:bits=4", 200'000, false, 0.05},
  };
  return kinds;
}

const Steps::Kind& Steps::kind_of(std::uint64_t step) { return kinds()[step % kinds().size()]; }

std::uint64_t Steps::calls_before(std::uint64_t step, std::size_t kind) {
  return (step + kinds().size() - 1 - kind) / kinds().size();
}

Steps::Steps(std::uint64_t id) : id_(id), feedback_(kinds().size()) {}

void Steps::settle(std::uint64_t step) {
  if (next_ == step) return;
  result_ = 0;
  for (std::size_t kind = 0; kind < kinds().size(); ++kind) {
    if (*kinds()[kind].compression == '\0') continue;
    const std::uint64_t calls = calls_before(step, kind);
    if (next_) {
      feedback_[kind].settle(calls);
    } else {
      feedback_[kind] = ErrorFeedback(kinds()[kind].count, calls);
    }
  }
  const bool undoes = next_ && step < *next_;
  if (const ErrorFeedback& feedback = feedback_[step % kinds().size()]; undoes && !feedback.is_none()) {
    require(std::ranges::equal(feedback.residual(), residual_), step,
            "a call that was undone has changed its residual");
  }
  next_ = step;
}

std::span<float> Steps::prepare(const Kind& kind, Communicator& group) {
  if (kind.is_shared && !shared_) shared_ = group.allocate<float>(kind.count);
  if (!kind.is_shared) values_.resize(kind.count);
  const std::span<float> values = kind.is_shared ? std::span<float>(*shared_) : std::span<float>(values_);
  const Inputs inputs(id_, *next_);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = inputs[i];
  return values;
}

// All that a failure may have changed is checked.
void Steps::call(const Kind& kind, Communicator& group, std::span<float> values) {
  const ErrorFeedback& feedback = feedback_[*next_ % kinds().size()];
  CallOptions options{.error_feedback = feedback, .keep_input = true};
  if (*kind.compression != '\0') options.compression = Compression::parse(kind.compression);
  residual_.clear();
  if (!feedback.is_none()) residual_.assign(feedback.residual().begin(), feedback.residual().end());
  try {
    group.all_reduce(values, options);
  } catch (const Error&) {
    const Inputs inputs(id_, *next_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      require(values[i] == inputs[i], *next_, fmt::format("a failed call has lost its input at {}", i));
    }
    if (feedback.is_none()) throw;
    require(std::ranges::equal(feedback.residual(), residual_), *next_, "a failed call has changed its residual");
    require(feedback.counter() == calls_before(*next_, *next_ % kinds().size()), *next_, "a failed call has counted");
    throw;
  }
}

std::vector<float> Steps::held_back(Communicator& group, const ErrorFeedback& feedback) const {
  std::vector<float> sum(feedback.residual().begin(), feedback.residual().end());
  group.all_reduce(sum);
  return sum;
}

std::uint64_t Steps::take(Communicator& group, const std::vector<std::uint64_t>& ids) {
  const std::uint64_t step = *next_;
  const Kind& kind = kind_of(step);
  const ErrorFeedback& feedback = feedback_[step % kinds().size()];
  std::vector<float> before;
  if (!feedback.is_none()) before = held_back(group, feedback);
  const std::span<float> values = prepare(kind, group);
  call(kind, group, values);
  next_ = step + 1;
  result_ = digest(std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
  const std::vector<float> inputs = sum_of_inputs(values.size(), step, ids);
  if (feedback.is_none()) {
    require(std::ranges::equal(values, inputs), step, "the sum is wrong");
    return result_;
  }
  const std::vector<float> after = held_back(group, feedback);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double given = static_cast<double>(inputs[i]) + static_cast<double>(before[i]);
    const double found = static_cast<double>(values[i]) + static_cast<double>(after[i]);
    require(std::abs(given - found) <= kind.tolerance, step,
            fmt::format("element {}: {} was put in, {} came out or is held back", i, given, found));
  }
  return result_;
}

}  // namespace qccl::testing
