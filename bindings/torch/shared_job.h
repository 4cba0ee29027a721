// The ranks that one qccl Context joins. Every process group among them shares it: the first group makes it, later ones
// are subgroups of it and open no new connections.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <unordered_map>
#include <vector>

#include "group_options.h"
#include "open_windows.h"
#include "qccl/communicator.h"
#include "qccl/status.h"
#include "work/completion_pool.h"
#include "work/operation_trace.h"

namespace qccl::torch_binding {

// The parameters of a new process group.
struct GroupSpec {
  c10::intrusive_ptr<c10d::Store> store{};
  int rank = 0;
  int size = 1;
  std::vector<std::int64_t> global_ranks{};  // in group order
  std::string name{};
  std::optional<std::chrono::milliseconds> timeout{};
  std::optional<std::chrono::milliseconds> init_timeout{};  // default: the timeout
  GroupSettings settings{};
  std::optional<Compression> message_compression{};  // of a new job: its groups' where their settings have none
  bool may_gate = false;                             // streams may wait for calls on a device
  std::string trace_dump{};                          // where a new job writes failures (OperationTrace::dump_to)
  bool alone = false;                                // no later group shares a new job
  std::function<void()> check_interrupt{};           // throws if a signal is to end the start of a new job
};

// A c10d store (torchrun's, a file, a hash map, one written in Python) as the store in which QCCL's ranks meet.
std::shared_ptr<Store> meeting_store(c10::intrusive_ptr<c10d::Store> store);

class SharedJob {
 public:
  // Collective over the ranks of `spec`. Throws qccl::Error.
  explicit SharedJob(const GroupSpec& spec);
  // Of a group that is all ranks of a job of its own. `ended`: the job goes on with those of its ranks that live, which
  // are numbered anew.
  SharedJob(Communicator group, const GroupSpec& spec, const SharedJob* ended = nullptr);

  // A group of some of the ranks; collective over them. Throws qccl::Error.
  Communicator subgroup(const GroupSpec& spec);
  // Takes part in close_group() and the calls like it.
  void add_group(const Communicator& group);
  // A group of the same ranks as `group`, with its own sequence of operations.
  Communicator twin(Communicator& group, const std::string& name);

  const Communicator& communicator() const { return communicator_; }
  const std::shared_ptr<CompletionPool>& pool() const { return pool_; }
  const std::shared_ptr<OperationTrace>& trace() const { return trace_; }
  const OperationLog& log() const { return log_; }
  // Compresses the messages of groups whose own settings name no codec.
  const std::optional<Compression>& message_compression() const { return message_compression_; }
  // They end with their groups; close_group() does not wait for them.
  OpenWindows& windows() { return windows_; }
  // Whether the group can be made here: the job is of its store and rank, has all its ranks, and accepts groups.
  bool accepts(const GroupSpec& spec);

  // This rank's counters; empty once all groups are closed.
  std::optional<Traffic> traffic();
  // The same of its state (qccl/status.h).
  std::optional<RankStatus> status();

  // For the end of the group that made this job. It ends at the same point of the program on every rank, so ranks agree
  // on which groups share a job.
  void accept_no_more_groups();
  // End a group on this rank: close waits for its operations, abort aborts them. Neither does
  // anything if the group was closed.
  void close_group(const Communicator& group);
  void abort_group(const Communicator& group, const std::string& reason);
  // At the end of the process, with or without destroy_process_group(): waits up to `limit` for
  // operations in flight, aborts the rest and closes every group.
  void close_all(std::chrono::milliseconds limit);

 private:
  const c10::intrusive_ptr<c10d::Store> base_store_;  // held, so that no other store gets its address
  const std::int64_t global_rank_;
  const std::vector<std::int64_t> global_ranks_;
  Communicator communicator_;
  const std::shared_ptr<CompletionPool> pool_ = std::make_shared<CompletionPool>();
  const std::shared_ptr<OperationTrace> trace_;
  const OperationLog log_;
  const std::optional<Compression> message_compression_;
  OpenWindows windows_{pool_};

  // The group, if it is open on this rank.
  std::optional<Communicator> find_group(const Communicator& group, bool removes);

  std::mutex mutex_;  // guards the members below
  bool accepts_groups_;
  std::vector<Communicator> groups_;  // open on this rank
  std::unordered_map<std::string, int> uses_of_name_;
};

// The jobs of this process (one of the named exceptions to "no mutable globals"). It keeps no job alive. Thread-safe.
class JobRegistry {
 public:
  static JobRegistry& instance();
  // The job that accepts the group, if any.
  std::shared_ptr<SharedJob> find(const GroupSpec& spec);
  // Returns the job. `is_successor`: its log is that of a job which was added before.
  std::shared_ptr<SharedJob> add(std::shared_ptr<SharedJob> job, bool is_successor = false);
  std::vector<std::shared_ptr<SharedJob>> all();
  // The first of the numbers by which hooks know the operations of one group, or of one window. No other of this
  // process has them.
  std::uint64_t next_completion_keys() {
    constexpr int kKeyBits = 40;  // a group's operations in years
    return ++groups_ << kKeyBits;
  }
  // At the end of the process: ends the threads of all jobs, destroyed ones included.
  void end_threads(std::chrono::milliseconds limit);

  // The log of the process: it covers all jobs, future and ended ones included.
  void configure_log(const LogOptions& options);
  LogOptions log_options();
  bool log_says_caller() const { return log_says_caller_.load(std::memory_order_relaxed); }
  RankLog read_log();
  void clear_log();

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<SharedJob>> jobs_;
  std::vector<CompletionPool::Threads> threads_;
  std::vector<OperationLog> logs_;
  LogOptions log_options_;
  std::atomic<bool> log_says_caller_ = false;
  std::atomic<std::uint64_t> groups_ = 0;
};

}  // namespace qccl::torch_binding
