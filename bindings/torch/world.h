// The ranks that one qccl Context joins, shared by every process group among them: the first
// group makes it, later ones are subgroups of it and open no new connections.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <unordered_map>
#include <vector>

#include "qccl/communicator.h"
#include "work/completion_pool.h"
#include "work/operation_trace.h"

namespace qccl::torch_binding {

// What a process group is made from.
struct GroupRequest {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  std::vector<std::int64_t> global_ranks;  // in group order
  std::string name;
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<Compression> compression;
  bool error_feedback = false;                        // of all reductions that are compressed
  std::optional<Compression> all_gather_compression;  // of floating point tensors
  std::string trace_dump;  // where failures are written (OperationTrace::dump_to), of a new world
};

class World {
 public:
  // Collective over the request's ranks. Throws qccl::Error.
  explicit World(const GroupRequest& request);

  // A group of some of the ranks; collective over them. Throws qccl::Error.
  Communicator subgroup(const GroupRequest& request);
  // The ranks of `group` again, with a sequence of operations of its own.
  Communicator twin(Communicator& group, const std::string& name);

  const Communicator& communicator() const { return communicator_; }
  const std::shared_ptr<CompletionPool>& pool() const { return pool_; }
  const std::shared_ptr<OperationTrace>& trace() const { return trace_; }
  const OperationLog& log() const { return log_; }
  bool covers(const std::vector<std::int64_t>& global_ranks) const;

  // No further groups: the group that made this world has ended on this rank. It ends at the
  // same place of the program on every rank, so ranks agree on which groups share a world.
  void retire();
  // Ends a group on this rank: waits for its operations, or aborts them. Nothing if it was closed.
  void close_group(const Communicator& group);
  void abort_group(const Communicator& group, const std::string& reason);
  // At the end of the process, with or without destroy_process_group(): gives operations in
  // flight until `limit`, aborts what is left and closes every group.
  void close_all(std::chrono::milliseconds limit);

 private:
  friend class WorldRegistry;
  const c10::intrusive_ptr<c10d::Store> base_store_;  // held, so that its address stays its own
  const std::int64_t global_rank_;
  const std::vector<std::int64_t> global_ranks_;
  Communicator communicator_;
  const std::shared_ptr<CompletionPool> pool_ = std::make_shared<CompletionPool>();
  const std::shared_ptr<OperationTrace> trace_;
  const OperationLog log_;

  using Groups = std::vector<Communicator>;
  Groups::iterator find_group(const Communicator& group);

  std::mutex mutex_;  // of what follows
  bool retired_ = false;
  Groups groups_;  // open on this rank
  std::unordered_map<std::string, int> uses_of_name_;
};

// The worlds of this process (one of the named exceptions to "no mutable globals"): it holds no
// world alive. Thread-safe.
class WorldRegistry {
 public:
  static WorldRegistry& instance();
  // The world of this store and rank, not retired, that holds all ranks of the request, if any.
  std::shared_ptr<World> find(const GroupRequest& request);
  void add(const std::shared_ptr<World>& world);
  std::vector<std::shared_ptr<World>> all();
  // At the end of the process: of all worlds, also of those that are gone.
  void end_threads(std::chrono::milliseconds limit);

  // The log of the process: of all worlds, also of those to come and of those that have ended.
  void configure_log(const LogOptions& options);
  LogOptions log_options();
  bool log_says_caller() const { return log_says_caller_.load(std::memory_order_relaxed); }
  RankLog read_log();
  void clear_log();

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<World>> worlds_;
  std::vector<CompletionPool::Threads> threads_;
  std::vector<OperationLog> logs_;
  LogOptions log_options_;
  std::atomic<bool> log_says_caller_ = false;
};

}  // namespace qccl::torch_binding
