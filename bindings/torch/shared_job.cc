#include "shared_job.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace qccl::torch_binding {
namespace {

// Waits poll: a c10d client serves one thread at a time, its waits can't be interrupted, and TCPStore's client warns of
// every wait that times out. A pause is as long as a tenth of the wait so far.
constexpr std::chrono::milliseconds kFirstPause{1};
constexpr std::chrono::milliseconds kLongestPause{100};

[[noreturn]] void throw_store_failed(const char* call, const std::string& key, const std::string& cause) {
  throw Error({.kind = ErrorKind::peer_lost,
               .message = std::string("the store failed in ") + call + "(\"" + key + "\"): " + cause});
}

bool answers(c10d::Store& store, const std::string& key) {
  try {
    store.check({key});
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

class C10dStore final : public qccl::Store {
 public:
  C10dStore(c10::intrusive_ptr<c10d::Store> store, std::function<void()> check_interrupt)
      : store_(std::move(store)), check_interrupt_(std::move(check_interrupt)) {}

  // What check_interrupt has thrown, if it has.
  void rethrow_interrupt() const {
    if (interrupt_) std::rethrow_exception(interrupt_);
  }

  void set(const std::string& key, const std::string& value) override {
    try {
      store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
    } catch (const c10::Error& error) {
      throw_store_failed("set", key, error.what_without_backtrace());
    }
  }

  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    try {
      if (!poll(key, timeout)) return std::nullopt;
      const std::vector<std::uint8_t> value = store_->get(key);
      return std::string(value.begin(), value.end());
    } catch (const c10::Error& error) {
      // Stores report a timeout with different exception types. If the store still answers, it was a timeout.
      if (answers(*store_, key)) return std::nullopt;
      throw_store_failed("get", key, error.what_without_backtrace());
    }
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    try {
      return store_->add(key, delta);
    } catch (const c10::Error& error) {
      throw_store_failed("add", key, error.what_without_backtrace());
    }
  }

 private:
  bool poll(const std::string& key, std::chrono::milliseconds timeout) {
    std::chrono::milliseconds waited{0};
    for (;;) {
      look_for_interrupt();
      if (store_->check({key})) return true;
      if (waited >= timeout) return false;
      const auto pause = std::min(std::clamp(waited / 10, kFirstPause, kLongestPause), timeout - waited);
      std::this_thread::sleep_for(pause);
      waited += pause;
    }
  }

  void look_for_interrupt() {
    if (!check_interrupt_ || interrupt_) return;
    try {
      check_interrupt_();
    } catch (...) {
      interrupt_ = std::current_exception();
      throw Error({.kind = ErrorKind::aborted, .message = "a signal interrupted the start of this rank"});
    }
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::function<void()> check_interrupt_;
  std::exception_ptr interrupt_;
};

c10::intrusive_ptr<c10d::Store> base_of(const c10::intrusive_ptr<c10d::Store>& store) {
  if (auto prefixed = c10::dynamic_intrusive_pointer_cast<c10d::PrefixStore>(store)) {
    return prefixed->getUnderlyingNonPrefixStore();
  }
  return store;
}

// The host that this process reaches the store at, if it is a TCP store: the route there shows which interface to use.
std::optional<std::string> store_host(const GroupSpec& spec) {
  const auto tcp = c10::dynamic_intrusive_pointer_cast<c10d::TCPStore>(base_of(spec.store));
  if (tcp == nullptr) return std::nullopt;
  return tcp->getHost();
}

InitOptions init_options(const GroupSpec& spec, std::shared_ptr<Store> store) {
  InitOptions options{.rank = spec.rank,
                      .world = spec.size,
                      .master_address = store_host(spec),
                      .store = std::move(store),
                      .job = "torch/" + spec.name,
                      .timeout = spec.timeout,
                      .init_timeout = spec.init_timeout ? spec.init_timeout : spec.timeout,
                      .log = JobRegistry::instance().log_options()};
  options.log->rank = static_cast<int>(spec.global_ranks.at(static_cast<std::size_t>(spec.rank)));
  return options;
}

Communicator start(const GroupSpec& spec) {
  const auto store = std::make_shared<C10dStore>(spec.store, spec.check_interrupt);
  try {
    return qccl::init(init_options(spec, store));
  } catch (const Error&) {
    store->rethrow_interrupt();
    throw;
  }
}

}  // namespace

std::shared_ptr<Store> meeting_store(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_shared<C10dStore>(std::move(store), nullptr);
}

SharedJob::SharedJob(const GroupSpec& spec) : SharedJob(start(spec), spec) {
  // Not an option of init(), because later groups must not inherit it.
  if (spec.settings.compression) communicator_.set_compression(*spec.settings.compression);
}

SharedJob::SharedJob(Communicator group, const GroupSpec& spec, const SharedJob* ended)
    : base_store_(ended != nullptr ? ended->base_store_ : base_of(spec.store)),
      global_rank_(spec.global_ranks.at(spec.rank)),
      global_ranks_(spec.global_ranks),
      communicator_(std::move(group)),
      trace_(ended != nullptr ? ended->trace_ : std::make_shared<OperationTrace>(static_cast<int>(global_rank_))),
      log_(ended != nullptr ? ended->log_ : communicator_.log()),
      message_compression_(spec.message_compression),
      accepts_groups_(!spec.alone),
      groups_{communicator_} {
  if (ended == nullptr) trace_->dump_to(spec.trace_dump);
}

void SharedJob::add_group(const Communicator& group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(group);
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
  if (spec.settings.compression) group.set_compression(*spec.settings.compression);
  if (spec.timeout) group.set_timeout(*spec.timeout);
  add_group(group);
  return group;
}

Communicator SharedJob::twin(Communicator& group, const std::string& name) {
  std::vector<int> everyone(static_cast<std::size_t>(group.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  Communicator twin = group.subgroup(everyone, name);
  add_group(twin);
  return twin;
}

bool SharedJob::accepts(const GroupSpec& spec) {
  if (base_of(spec.store) != base_store_ || spec.global_ranks.at(spec.rank) != global_rank_) return false;
  const std::lock_guard lock(mutex_);
  return accepts_groups_ && std::ranges::all_of(spec.global_ranks, [this](std::int64_t rank) {
           return std::ranges::find(global_ranks_, rank) != global_ranks_.end();
         });
}

std::optional<Traffic> SharedJob::traffic() {
  const std::lock_guard lock(mutex_);
  return groups_.empty() ? std::nullopt : std::optional(groups_.front().traffic());
}

std::optional<RankStatus> SharedJob::status() {
  const std::lock_guard lock(mutex_);
  return groups_.empty() ? std::nullopt : std::optional(groups_.front().status());
}

void SharedJob::accept_no_more_groups() {
  const std::lock_guard lock(mutex_);
  accepts_groups_ = false;
}

std::optional<Communicator> SharedJob::find_group(const Communicator& group, bool removes) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(groups_, group.name(), &Communicator::name);
  if (found == groups_.end()) return std::nullopt;
  Communicator open = *found;
  if (removes) groups_.erase(found);
  return open;
}

void SharedJob::close_group(const Communicator& group) {
  windows_.close_in_background(group.name());
  if (auto open = find_group(group, true)) open->close();
}

void SharedJob::abort_group(const Communicator& group, const std::string& reason) {
  windows_.abort(reason, group.name());
  if (auto open = find_group(group, false)) open->abort(reason);
}

void SharedJob::close_all(std::chrono::milliseconds limit) {
  std::vector<Communicator> groups;
  {
    std::lock_guard lock(mutex_);
    accepts_groups_ = false;
    groups.swap(groups_);
  }
  windows_.close_in_background();
  const bool quiet = pool_->drain(limit);
  if (!quiet) windows_.abort("the process ends while the window is open");
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

std::shared_ptr<SharedJob> JobRegistry::add(std::shared_ptr<SharedJob> job, bool is_successor) {
  std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [](const auto& other) { return other.expired(); });
  jobs_.push_back(job);
  std::erase_if(threads_, [](const auto& other) { return other.expired(); });
  threads_.push_back(job->pool()->threads());
  if (!is_successor) logs_.push_back(job->log());
  // The log settings from the environment apply to the whole process.
  log_options_ = job->log().options();
  return job;
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
  for (const OperationLog& log : logs_) append(whole, log.read());
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
