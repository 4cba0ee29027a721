// Ranks as threads of one process over the real transports, so that sanitizers, which do not see
// across processes, can check whole jobs.
#pragma once

#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "qccl/qccl.h"

namespace qccl::testing {

// A store in this process. Thread-safe.
class MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

// Makes one machine act as several hosts to the jobs that begin in its life: "2x4".
class Hosts {
 public:
  explicit Hosts(const char* grid) { ::setenv("QCCL_HOSTS", grid, 1); }
  ~Hosts() { ::unsetenv("QCCL_HOSTS"); }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;
};

struct ThreadJobOptions {
  TransportChoice transport = TransportChoice::automatic;
  Milliseconds timeout{60'000};
  std::optional<Compression> compression;
};

// Runs `body` once per rank, each in a separate thread with its own context, and joins them.
// Returns what each rank threw: empty strings for ranks that succeeded.
std::vector<std::string> run_threads(int world, const ThreadJobOptions& options,
                                     const std::function<void(Communicator&)>& body);

}  // namespace qccl::testing
