#include "world.h"

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "store.h"

namespace qccl::torch_binding {
namespace {

c10::intrusive_ptr<c10d::Store> base_of(const c10::intrusive_ptr<c10d::Store>& store) {
  if (auto prefixed = c10::dynamic_intrusive_pointer_cast<c10d::PrefixStore>(store)) {
    return prefixed->getUnderlyingNonPrefixStore();
  }
  return store;
}

InitOptions init_options(const GroupRequest& request) {
  InitOptions options;
  options.rank = request.rank;
  options.world = request.size;
  options.store = std::make_shared<C10dStore>(request.store);
  options.job = "torch/" + request.name;
  options.timeout = request.timeout;
  options.init_timeout = request.timeout;
  options.log = WorldRegistry::instance().log_options();
  options.log->rank = static_cast<int>(request.global_ranks.at(static_cast<std::size_t>(request.rank)));
  return options;
}

}  // namespace

World::World(const GroupRequest& request)
    : base_store_(base_of(request.store)),
      global_rank_(request.global_ranks.at(request.rank)),
      global_ranks_(request.global_ranks),
      communicator_(qccl::init(init_options(request))),
      trace_(std::make_shared<OperationTrace>(static_cast<int>(global_rank_))),
      log_(communicator_.log()),
      groups_{communicator_} {
  trace_->dump_to(request.trace_dump);
  // Not an option of init(), because later groups must not inherit it.
  if (request.compression) communicator_.set_compression(*request.compression);
}

Communicator World::subgroup(const GroupRequest& request) {
  std::vector<int> ranks;
  for (const std::int64_t global : request.global_ranks) {
    const auto place = std::find(global_ranks_.begin(), global_ranks_.end(), global);
    ranks.push_back(static_cast<int>(place - global_ranks_.begin()));
  }
  int use = 0;
  {
    // torch reuses the name of a destroyed group, always for the same ranks.
    std::lock_guard lock(mutex_);
    use = ++uses_of_name_[request.name];
  }
  Communicator group = communicator_.subgroup(ranks, request.name + "#" + std::to_string(use));
  if (request.compression) group.set_compression(*request.compression);
  if (request.timeout) group.set_timeout(*request.timeout);
  std::lock_guard lock(mutex_);
  groups_.push_back(group);
  return group;
}

Communicator World::twin(Communicator& group, const std::string& name) {
  std::vector<int> everyone(static_cast<std::size_t>(group.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  Communicator twin = group.subgroup(everyone, name);
  std::lock_guard lock(mutex_);
  groups_.push_back(twin);
  return twin;
}

bool World::covers(const std::vector<std::int64_t>& global_ranks) const {
  return std::all_of(global_ranks.begin(), global_ranks.end(), [this](std::int64_t rank) {
    return std::find(global_ranks_.begin(), global_ranks_.end(), rank) != global_ranks_.end();
  });
}

void World::retire() {
  std::lock_guard lock(mutex_);
  retired_ = true;
}

World::Groups::iterator World::find_group(const Communicator& group) {
  return std::find_if(groups_.begin(), groups_.end(),
                      [&](const Communicator& other) { return other.name() == group.name(); });
}

void World::close_group(const Communicator& group) {
  std::optional<Communicator> found;
  {
    std::lock_guard lock(mutex_);
    const auto place = find_group(group);
    if (place == groups_.end()) return;
    found = *place;
    groups_.erase(place);
  }
  found->close();
}

void World::abort_group(const Communicator& group, const std::string& reason) {
  std::optional<Communicator> found;
  {
    std::lock_guard lock(mutex_);
    const auto place = find_group(group);
    if (place == groups_.end()) return;
    found = *place;
  }
  found->abort(reason);
}

void World::close_all(std::chrono::milliseconds limit) {
  Groups groups;
  {
    std::lock_guard lock(mutex_);
    retired_ = true;
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

WorldRegistry& WorldRegistry::instance() {
  static WorldRegistry registry;
  return registry;
}

std::shared_ptr<World> WorldRegistry::find(const GroupRequest& request) {
  const auto base = base_of(request.store);
  const std::int64_t global_rank = request.global_ranks.at(request.rank);
  for (const auto& world : all()) {
    if (world->base_store_ != base || world->global_rank_ != global_rank) continue;
    std::lock_guard lock(world->mutex_);
    if (!world->retired_ && world->covers(request.global_ranks)) return world;
  }
  return nullptr;
}

void WorldRegistry::add(const std::shared_ptr<World>& world) {
  std::lock_guard lock(mutex_);
  std::erase_if(worlds_, [](const auto& other) { return other.expired(); });
  worlds_.push_back(world);
  std::erase_if(threads_, [](const auto& other) { return other.expired(); });
  threads_.push_back(world->pool()->threads());
  logs_.push_back(world->log());
  // The log settings from the environment apply to the whole process.
  log_options_ = world->log().options();
}

void WorldRegistry::end_threads(std::chrono::milliseconds limit) {
  std::vector<CompletionPool::Threads> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(threads_);
  }
  for (const auto& threads : all) CompletionPool::end(threads, limit);
}

void WorldRegistry::configure_log(const LogOptions& options) {
  std::lock_guard lock(mutex_);
  for (OperationLog& log : logs_) log.configure(options);
  log_options_ = options;
  log_says_caller_ = options.enabled && options.debug;
}

LogOptions WorldRegistry::log_options() {
  std::lock_guard lock(mutex_);
  return log_options_;
}

RankLog WorldRegistry::read_log() {
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

void WorldRegistry::clear_log() {
  std::lock_guard lock(mutex_);
  for (OperationLog& log : logs_) log.clear();
}

std::vector<std::shared_ptr<World>> WorldRegistry::all() {
  std::vector<std::shared_ptr<World>> alive;
  std::lock_guard lock(mutex_);
  for (const auto& entry : worlds_) {
    if (auto world = entry.lock()) alive.push_back(std::move(world));
  }
  return alive;
}

}  // namespace qccl::torch_binding
