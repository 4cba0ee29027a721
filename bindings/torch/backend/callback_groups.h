// A process group's communicator and its twins. Collectives that callbacks of futures start run in a twin, one for each
// CompletionOrder::current_sequence(). Ranks make a twin together, when such a callback starts its first collective.
#pragma once

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "qccl/communicator.h"
#include "shared_job.h"

namespace qccl::torch_binding {

// Thread-safe. Only for_this_thread() and wait_until_made() wait for anything. Throws qccl::Error.
class CallbackGroups {
 public:
  CallbackGroups(std::shared_ptr<SharedJob> job, Communicator group, const GroupSpec& spec);

  // Returns the group, or its twin inside a callback. The first call inside a callback makes the twin, collective over
  // the ranks.
  Communicator for_this_thread();

  // Settings apply to the group and all twins, later ones included.
  void set_timeout(std::chrono::milliseconds timeout);
  void set_compression(const Compression& compression);
  std::optional<Compression> compression() const;

  // The group and its twins, without those still being made.
  std::vector<Communicator> all() const;
  // Returns whether every twin is made, or has failed, by the deadline.
  bool wait_until_made(std::chrono::steady_clock::time_point deadline) const;
  // Aborts the group and its twins, including those still being made. No twin is made afterwards.
  void abort(const std::string& reason);

 private:
  using Twin = std::shared_future<Communicator>;

  void make(const std::string& sequence, std::promise<Communicator>& twin);
  std::vector<Communicator> all_with_lock_held() const;

  const std::shared_ptr<SharedJob> job_;
  Communicator group_;

  mutable std::mutex mutex_;  // guards the members below; never held while waiting for anything
  std::map<std::string, Twin> twins_;
  std::optional<Compression> compression_;
  std::optional<std::chrono::milliseconds> timeout_;
  std::optional<std::string> aborted_;  // the reason
};

}  // namespace qccl::torch_binding
