#include "train/data_parallel.h"

#include <algorithm>
#include <utility>

namespace qccl::train {
namespace {

// FNV-1a: names and sizes of parameters, to compare between ranks.
std::uint64_t digest_of(const Parameter& parameter) {
  std::uint64_t digest = 0xCBF29CE484222325;
  const auto add = [&digest](std::uint64_t byte) { digest = (digest ^ byte) * 0x100000001B3; };
  for (const char c : parameter.name) add(static_cast<unsigned char>(c));
  for (int i = 0; i < 8; ++i) add(parameter.value.size() >> (8 * i) & 0xFF);
  return digest;
}

}  // namespace

// ---- State

DataParallel::State::State(Communicator group, std::vector<Parameter> parameters, const DataParallelOptions& options)
    : divisor(group.size()),
      group_(std::move(group)),
      parameters_(std::move(parameters)),
      options_(options),
      feedback_(parameters_.size()),
      bucket_of_(parameters_.size()),
      place_in_bucket_(parameters_.size()) {
  check_alike();
  for (auto& members : bucket_members(parameters_, options_)) {
    for (std::size_t place = 0; place < members.size(); ++place) {
      bucket_of_[members[place]] = buckets_.size();
      place_in_bucket_[members[place]] = place;
    }
    buckets_.emplace_back(parameters_, std::move(members));
  }
  begin_step();
  take_values_of(0);
}

DataParallel::State::~State() {
  for (Bucket& bucket : buckets_) {
    try {
      if (bucket.is_posted()) bucket.wait();
    } catch (const Error&) {
      // The group had failed, and later calls throw that failure again.
    }
  }
}

void DataParallel::State::fail(ErrorKind kind, const std::string& what) const {
  throw Error({.kind = kind,
               .message = "QCCL rank " + std::to_string(group_.rank()) + ", group '" + group_.name() +
                          "': data parallel: " + what,
               .rank = group_.rank()});
}

std::size_t DataParallel::State::checked(std::size_t parameter) const {
  if (parameter < parameters_.size()) return parameter;
  fail(ErrorKind::invalid_argument,
       "there is no parameter " + std::to_string(parameter) + " of " + std::to_string(parameters_.size()));
}

// All ranks throw, or none does.
void DataParallel::State::check_alike() const {
  std::string own;
  for (const Parameter& parameter : parameters_) {
    if (parameter.gradient.size() != parameter.value.size() && own.empty()) {
      own = "parameter " + parameter.name + " has " + std::to_string(parameter.value.size()) + " values and " +
            std::to_string(parameter.gradient.size()) + " gradients";
    }
  }
  const auto world = static_cast<std::size_t>(group_.size());
  const std::vector<std::uint64_t> count{parameters_.size(), own.empty() ? 0u : 1u};
  std::vector<std::uint64_t> counts(2 * world);
  group_.all_gather(count, counts);
  if (!own.empty()) fail(ErrorKind::invalid_argument, own);
  for (std::size_t rank = 0; rank < world; ++rank) {
    if (counts[2 * rank + 1] != 0) {
      fail(ErrorKind::invalid_argument, "rank " + std::to_string(rank) + " has a parameter with wrong gradients");
    }
    if (counts[2 * rank] == counts[0]) continue;
    fail(ErrorKind::invalid_argument, "rank " + std::to_string(rank) + " has " + std::to_string(counts[2 * rank]) +
                                          " parameters, rank 0 has " + std::to_string(counts[0]));
  }
  std::vector<std::uint64_t> digests;
  for (const Parameter& parameter : parameters_) digests.push_back(digest_of(parameter));
  std::vector<std::uint64_t> all(digests.size() * world);
  group_.all_gather(digests, all);
  for (std::size_t i = 0; i < digests.size(); ++i) {
    for (std::size_t rank = 1; rank < world; ++rank) {
      if (all[rank * digests.size() + i] == all[i]) continue;
      fail(ErrorKind::invalid_argument, "parameter " + std::to_string(i) + ", here " + parameters_[i].name + " of " +
                                            std::to_string(parameters_[i].value.size()) +
                                            " elements, has another name or size on rank " + std::to_string(rank) +
                                            " than on rank 0");
    }
  }
}

void DataParallel::State::take_values_of(int rank) {
  std::vector<Work> works;
  for (const Parameter& parameter : parameters_) {
    works.push_back(group_.broadcast_async(parameter.value.data(), parameter.value.size(), DataType::float32,
                                           {.root = rank, .compression = none()}));
  }
  for (const Work& work : works) work.wait();
}

void DataParallel::State::begin_step() {
  ready_.assign(parameters_.size(), 0);
  next_bucket_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.members().size();
}

// In bucket order, which is the same on all ranks.
void DataParallel::State::post_complete_buckets() {
  for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0; ++next_bucket_) {
    buckets_[next_bucket_].post(group_, parameters_, options_.policy, step,
                                options_.error_feedback ? &feedback_ : nullptr);
  }
}

void DataParallel::State::ready(std::size_t parameter) {
  if (accumulations > 0) return;
  const Parameter& own = parameters_[checked(parameter)];
  if (ready_[parameter] != 0) fail(ErrorKind::misuse, "parameter " + own.name + " was ready before in this step");
  ready_[parameter] = 1;
  Bucket& bucket = buckets_[bucket_of_[parameter]];
  std::copy(own.gradient.begin(), own.gradient.end(), bucket.part(place_in_bucket_[parameter]).begin());
  --bucket.missing;
  post_complete_buckets();
}

// For each parameter, the number of ranks that had it ready.
std::vector<std::int32_t> DataParallel::State::used_anywhere() {
  std::vector<std::int32_t> used = ready_;
  group_.all_reduce(used);
  return used;
}

void DataParallel::State::finish() {
  if (accumulations > 0) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (ready_[i] != 0) continue;
    if (!options_.unused_parameters) {
      fail(ErrorKind::misuse, "parameter " + parameters_[i].name +
                                  " was not ready when the step ended; with unused_parameters it would count as zeros");
    }
    std::ranges::fill(buckets_[bucket_of_[i]].part(place_in_bucket_[i]), 0.0F);
    --buckets_[bucket_of_[i]].missing;
  }
  post_complete_buckets();
  std::vector<std::int32_t> used = ready_;
  if (options_.unused_parameters) used = used_anywhere();
  write_averages(used);
  ++step;
  begin_step();
}

void DataParallel::State::write_averages(const std::vector<std::int32_t>& used) {
  const auto share = static_cast<float>(1 / divisor);
  for (Bucket& bucket : buckets_) {
    bucket.wait();
    for (std::size_t place = 0; place < bucket.members().size(); ++place) {
      const std::size_t parameter = bucket.members()[place];
      if (used[parameter] == 0) continue;
      const std::span<float> sum = bucket.part(place);
      std::transform(sum.begin(), sum.end(), parameters_[parameter].gradient.begin(),
                     [share](float x) { return x * share; });
    }
  }
}

void DataParallel::State::shadow() {
  for (Bucket& bucket : buckets_) {
    for (std::size_t place = 0; place < bucket.members().size(); ++place) std::ranges::fill(bucket.part(place), 0.0F);
    bucket.missing = 0;
  }
  post_complete_buckets();
  if (options_.unused_parameters) used_anywhere();
  for (Bucket& bucket : buckets_) bucket.wait();
  ++step;
  begin_step();
}

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

}  // namespace qccl::train
