// The public DataParallel and Join.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/digest/digest.h"
#include "extras/train/buckets.h"

namespace qccl::train {
// ---- State

class DataParallel::State {
 public:
  State(Communicator group, std::vector<Parameter> parameters, const DataParallelOptions& options)
      : divisor(group.size()),
        group_(std::move(group)),
        parameters_(std::move(parameters)),
        options_(options),
        feedback_(parameters_.size()),
        bucket_of_(parameters_.size()),
        index_in_bucket_(parameters_.size()) {
    check_alike();
    for (auto& members : bucket_members(parameters_, options_)) {
      for (std::size_t index = 0; index < members.size(); ++index) {
        bucket_of_[members[index]] = buckets_.size();
        index_in_bucket_[members[index]] = index;
      }
      buckets_.emplace_back(parameters_, std::move(members));
    }
    begin_step();
    broadcast_values(0);
  }

  ~State() {
    for (Bucket& bucket : buckets_) {
      try {
        if (bucket.is_posted()) bucket.wait();
      } catch (const Error&) {
        // The group had failed, and later calls throw that failure again.
      }
    }
  }

  void ready(std::size_t parameter) {
    if (accumulations > 0) return;
    const Parameter& own = parameters_[checked(parameter)];
    if (ready_[parameter] != 0) fail(ErrorKind::misuse, fmt::format("parameter {} was ready already", own.name));
    ready_[parameter] = 1;
    Bucket& bucket = buckets_[bucket_of_[parameter]];
    std::copy(own.gradient.begin(), own.gradient.end(), bucket.part(index_in_bucket_[parameter]).begin());
    --bucket.missing;
    post_complete_buckets();
  }

  void finish() {
    if (accumulations > 0) return;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (ready_[i] != 0) continue;
      if (!options_.unused_parameters) {
        fail(ErrorKind::misuse, fmt::format("parameter {} was not ready when the step ended; with unused_parameters it "
                                            "would count as zeros",
                                            parameters_[i].name));
      }
      std::ranges::fill(buckets_[bucket_of_[i]].part(index_in_bucket_[i]), 0.0F);
      --buckets_[bucket_of_[i]].missing;
    }
    post_complete_buckets();
    std::vector<std::int32_t> used = ready_;
    if (options_.unused_parameters) used = used_anywhere();
    write_averages(used);
    ++step;
    begin_step();
  }

  // A step of a rank without a batch: sends zeros and writes nothing.
  void shadow() {
    for (Bucket& bucket : buckets_) {
      for (std::size_t index = 0; index < bucket.members().size(); ++index) std::ranges::fill(bucket.part(index), 0.0F);
      bucket.missing = 0;
    }
    post_complete_buckets();
    if (options_.unused_parameters) used_anywhere();
    for (Bucket& bucket : buckets_) bucket.wait();
    ++step;
    begin_step();
  }

  // Gives every rank the values of rank `rank`.
  void broadcast_values(int rank) {
    std::vector<Work> works;
    for (const Parameter& parameter : parameters_) {
      works.push_back(group_.broadcast_async(parameter.value.data(), parameter.value.size(), DataType::float32,
                                             {.root = rank, .compression = none()}));
    }
    for (const Work& work : works) work.wait();
  }

  Communicator& group() { return group_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const ErrorFeedback& feedback(std::size_t parameter) const { return feedback_[checked(parameter)]; }
  void set_feedback(std::size_t parameter, ErrorFeedback feedback) {
    feedback_[checked(parameter)] = std::move(feedback);
  }

  std::uint64_t step = 0;
  int accumulations = 0;
  double divisor;  // sums are divided by it

 private:
  std::size_t checked(std::size_t parameter) const {
    if (parameter < parameters_.size()) return parameter;
    fail(ErrorKind::invalid_argument, fmt::format("there is no parameter {} of {}", parameter, parameters_.size()));
  }

  // All ranks throw, or none does.
  void check_alike() const {
    const auto invalid = [&](const std::string& what) { fail(ErrorKind::invalid_argument, what); };
    const auto wrong = std::ranges::find_if(
        parameters_, [](const Parameter& parameter) { return parameter.gradient.size() != parameter.value.size(); });
    const auto world = static_cast<std::size_t>(group_.size());
    std::vector<std::uint64_t> counts(2 * world);
    const std::vector<std::uint64_t> own{parameters_.size(), wrong == parameters_.end() ? 0u : 1u};
    group_.all_gather(own, counts);
    if (wrong != parameters_.end()) {
      invalid(fmt::format("parameter {} has {} values and {} gradients", wrong->name, wrong->value.size(),
                          wrong->gradient.size()));
    }
    for (std::size_t rank = 0; rank < world; ++rank) {
      if (counts[2 * rank + 1] != 0) invalid(fmt::format("rank {} has a parameter with wrong gradients", rank));
      if (counts[2 * rank] != counts[0]) {
        invalid(fmt::format("rank {} has {} parameters, rank 0 has {}", rank, counts[2 * rank], counts[0]));
      }
    }
    std::vector<std::uint64_t> digests;
    for (const Parameter& parameter : parameters_) digests.push_back(digest(parameter.name, parameter.value.size()));
    std::vector<std::uint64_t> all(digests.size() * world);
    group_.all_gather(digests, all);
    for (std::size_t i = 0; i < digests.size(); ++i) {
      for (std::size_t rank = 1; rank < world; ++rank) {
        if (all[rank * digests.size() + i] == all[i]) continue;
        invalid(fmt::format("parameter {}, here {} of {} elements, has another name or size on rank {} than on rank 0",
                            i, parameters_[i].name, parameters_[i].value.size(), rank));
      }
    }
  }

  void begin_step() {
    ready_.assign(parameters_.size(), 0);
    next_bucket_ = 0;
    for (Bucket& bucket : buckets_) bucket.missing = bucket.members().size();
  }

  // In bucket order, which is the same on all ranks.
  void post_complete_buckets() {
    for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0; ++next_bucket_) {
      buckets_[next_bucket_].post(group_, parameters_, options_.policy, step,
                                  options_.error_feedback ? &feedback_ : nullptr);
    }
  }

  // For each parameter, the number of ranks on which it was ready.
  std::vector<std::int32_t> used_anywhere() {
    std::vector<std::int32_t> used = ready_;
    group_.all_reduce(used);
    return used;
  }

  void write_averages(const std::vector<std::int32_t>& used) {
    const auto share = static_cast<float>(1 / divisor);
    for (Bucket& bucket : buckets_) {
      bucket.wait();
      for (std::size_t index = 0; index < bucket.members().size(); ++index) {
        const std::size_t parameter = bucket.members()[index];
        if (used[parameter] == 0) continue;
        const std::span<float> sum = bucket.part(index);
        std::transform(sum.begin(), sum.end(), parameters_[parameter].gradient.begin(),
                       [share](float x) { return x * share; });
      }
    }
  }

  [[noreturn]] void fail(ErrorKind kind, const std::string& what) const {
    throw Error(
        {.kind = kind,
         .message = fmt::format("QCCL rank {}, group '{}': data parallel: {}", group_.rank(), group_.name(), what),
         .rank = group_.rank()});
  }

  mutable Communicator group_;
  const std::vector<Parameter> parameters_;
  const DataParallelOptions options_;
  std::vector<ErrorFeedback> feedback_;  // by parameter
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_, index_in_bucket_;  // by parameter
  std::vector<std::int32_t> ready_;                       // by parameter, in this step: 1 or 0
  std::size_t next_bucket_ = 0;                           // the first one not posted
};

// ---- DataParallel

DataParallel::DataParallel(Communicator group, std::vector<Parameter> parameters, const DataParallelOptions& options)
    : state_(std::make_unique<State>(std::move(group), std::move(parameters), options)) {}
DataParallel::~DataParallel() = default;
DataParallel::DataParallel(DataParallel&&) noexcept = default;

void DataParallel::ready(std::size_t parameter) { state_->ready(parameter); }
void DataParallel::finish() { state_->finish(); }
std::size_t DataParallel::buckets() const { return state_->buckets().size(); }
std::uint64_t DataParallel::step() const { return state_->step; }
void DataParallel::set_step(std::uint64_t step) { state_->step = step; }
const ErrorFeedback& DataParallel::feedback(std::size_t parameter) const { return state_->feedback(parameter); }
void DataParallel::set_feedback(std::size_t parameter, ErrorFeedback feedback) {
  state_->set_feedback(parameter, std::move(feedback));
}

DataParallel::Accumulation::Accumulation(DataParallel& model) : model_(model) { ++model_.state_->accumulations; }
DataParallel::Accumulation::~Accumulation() { --model_.state_->accumulations; }

// ---- Join

Join::Join(DataParallel& model, const JoinOptions& options) : model_(model), options_(options) {}

// Later steps include all ranks again.
Join::~Join() { model_.state_->divisor = model_.state_->group().size(); }

// Every rank calls this collective before each batch of any rank.
Join::Ranks Join::count(bool active) {
  DataParallel::State& state = *model_.state_;
  std::vector<std::int32_t> counts{active ? 1 : 0, active && state.accumulations == 0 ? 1 : 0};
  state.group().all_reduce(counts);
  const Ranks ranks{counts[0], counts[1]};
  if (options_.throw_on_early_end && ranks.active > 0 && ranks.active < state.group().size()) {
    throw Error(
        {.kind = ErrorKind::aborted,
         .message = fmt::format("QCCL rank {}, group '{}': join: {} of the ranks have no batch left, and "
                                "throw_on_early_end is set",
                                state.group().rank(), state.group().name(), state.group().size() - ranks.active),
         .rank = state.group().rank()});
  }
  return ranks;
}

void Join::next() {
  const Ranks ranks = count(true);
  if (!options_.divide_by_initial_world) model_.state_->divisor = ranks.active;
}

void Join::finish() {
  DataParallel::State& state = *model_.state_;
  bool is_last = true;
  for (Ranks ranks = count(false); ranks.active > 0; ranks = count(false)) {
    is_last = false;
    if (ranks.sending > 0) state.shadow();
  }
  std::vector<std::int32_t> last{is_last ? state.group().rank() : -1};
  state.group().all_reduce(last, {.op = ReduceOp::max});
  state.broadcast_values(last[0]);
}

}  // namespace qccl::train
