#include "shared_job.h"

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace qccl::torch_binding {
namespace {

c10::intrusive_ptr<c10d::Store> base_of(const c10::intrusive_ptr<c10d::Store>& store) {
  if (auto prefixed = c10::dynamic_intrusive_pointer_cast<c10d::PrefixStore>(store)) {
    return prefixed->getUnderlyingNonPrefixStore();
  }
  return store;
}

InitOptions init_options(const GroupSpec& spec) {
  InitOptions options;
  options.rank = spec.rank;
  options.world = spec.size;
  options.store = library_store(spec.store);
  options.job = "torch/" + spec.name;
  options.timeout = spec.timeout;
  options.init_timeout = spec.timeout;
  options.log = JobRegistry::instance().log_options();
  options.log->rank = static_cast<int>(spec.global_ranks.at(static_cast<std::size_t>(spec.rank)));
  return options;
}

}  // namespace

SharedJob::SharedJob(const GroupSpec& spec)
    : base_store_(base_of(spec.store)),
      global_rank_(spec.global_ranks.at(spec.rank)),
      global_ranks_(spec.global_ranks),
      communicator_(qccl::init(init_options(spec))),
      trace_(std::make_shared<OperationTrace>(static_cast<int>(global_rank_))),
      log_(communicator_.log()),
      groups_{communicator_} {
  trace_->dump_to(spec.trace_dump);
  // Not an option of init(), because later groups must not inherit it.
  if (spec.compression) communicator_.set_compression(*spec.compression);
}

Communicator SharedJob::subgroup(const GroupSpec& spec) {
  std::vector<int> ranks;
  for (const std::int64_t global : spec.global_ranks) {
    ranks.push_back(static_cast<int>(std::ranges::find(global_ranks_, global) - global_ranks_.begin()));
  }
  int use = 0;
  {
    // torch reuses the name of a destroyed group, always for the same ranks.
    std::lock_guard lock(mutex_);
    use = ++uses_of_name_[spec.name];
  }
  Communicator group = communicator_.subgroup(ranks, spec.name + "#" + std::to_string(use));
  if (spec.compression) group.set_compression(*spec.compression);
  if (spec.timeout) group.set_timeout(*spec.timeout);
  std::lock_guard lock(mutex_);
  groups_.push_back(group);
  return group;
}

Communicator SharedJob::twin(Communicator& group, const std::string& name) {
  std::vector<int> everyone(static_cast<std::size_t>(group.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  Communicator twin = group.subgroup(everyone, name);
  std::lock_guard lock(mutex_);
  groups_.push_back(twin);
  return twin;
}

bool SharedJob::accepts(const GroupSpec& spec) {
  if (base_of(spec.store) != base_store_ || spec.global_ranks.at(spec.rank) != global_rank_) return false;
  const std::lock_guard lock(mutex_);
  return accepts_groups_ && std::ranges::all_of(spec.global_ranks, [this](std::int64_t rank) {
           return std::ranges::find(global_ranks_, rank) != global_ranks_.end();
         });
}

void SharedJob::accept_no_more_groups() {
  const std::lock_guard lock(mutex_);
  accepts_groups_ = false;
}

SharedJob::Groups::iterator SharedJob::find_group(const Communicator& group) {
  return std::find_if(groups_.begin(), groups_.end(),
                      [&](const Communicator& other) { return other.name() == group.name(); });
}

void SharedJob::close_group(const Communicator& group) {
  std::optional<Communicator> closed;
  {
    std::lock_guard lock(mutex_);
    const auto found = find_group(group);
    if (found == groups_.end()) return;
    closed = *found;
    groups_.erase(found);
  }
  closed->close();
}

void SharedJob::abort_group(const Communicator& group, const std::string& reason) {
  std::optional<Communicator> aborted;
  {
    std::lock_guard lock(mutex_);
    const auto found = find_group(group);
    if (found == groups_.end()) return;
    aborted = *found;
  }
  aborted->abort(reason);
}

void SharedJob::close_all(std::chrono::milliseconds limit) {
  Groups groups;
  {
    std::lock_guard lock(mutex_);
    accepts_groups_ = false;
    groups.swap(groups_);
  }
  const bool quiet = pool_->drain(limit);
  for (Communicator& group : groups) {
    try {
      if (!quiet) group.abort("the process ends while operations are in flight");
      group.close();
    } catch (const Error&) {
      // The group had failed, and its operations have reported that.
    }
  }
}

JobRegistry& JobRegistry::instance() {
  static JobRegistry registry;
  return registry;
}

std::shared_ptr<SharedJob> JobRegistry::find(const GroupSpec& spec) {
  for (const auto& job : all()) {
    if (job->accepts(spec)) return job;
  }
  return nullptr;
}

void JobRegistry::add(const std::shared_ptr<SharedJob>& job) {
  std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [](const auto& other) { return other.expired(); });
  jobs_.push_back(job);
  std::erase_if(threads_, [](const auto& other) { return other.expired(); });
  threads_.push_back(job->pool()->threads());
  logs_.push_back(job->log());
  // The log settings from the environment apply to the whole process.
  log_options_ = job->log().options();
}

void JobRegistry::end_threads(std::chrono::milliseconds limit) {
  std::vector<CompletionPool::Threads> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(threads_);
  }
  for (const auto& threads : all) CompletionPool::end(threads, limit);
}

void JobRegistry::configure_log(const LogOptions& options) {
  std::lock_guard lock(mutex_);
  for (OperationLog& log : logs_) log.configure(options);
  log_options_ = options;
  log_says_caller_ = options.enabled && options.debug;
}

LogOptions JobRegistry::log_options() {
  std::lock_guard lock(mutex_);
  return log_options_;
}

RankLog JobRegistry::read_log() {
  std::lock_guard lock(mutex_);
  RankLog whole;
  for (const OperationLog& log : logs_) {
    RankLog part = log.read();
    part.dropped += whole.dropped;
    auto& earlier = whole.records;
    part.records.insert(part.records.begin(), std::make_move_iterator(earlier.begin()),
                        std::make_move_iterator(earlier.end()));
    whole = std::move(part);
  }
  return whole;
}

void JobRegistry::clear_log() {
  std::lock_guard lock(mutex_);
  for (OperationLog& log : logs_) log.clear();
}

std::vector<std::shared_ptr<SharedJob>> JobRegistry::all() {
  std::vector<std::shared_ptr<SharedJob>> alive;
  std::lock_guard lock(mutex_);
  for (const auto& entry : jobs_) {
    if (auto job = entry.lock()) alive.push_back(std::move(job));
  }
  return alive;
}

}  // namespace qccl::torch_binding
