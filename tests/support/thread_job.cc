#include "support/thread_job.h"

#include <thread>

namespace qccl::testing {

void MemoryStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

std::optional<std::string> MemoryStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) return std::nullopt;
  return values_[key];
}

std::int64_t MemoryStore::add(const std::string& key, std::int64_t delta) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  const std::int64_t sum = (found == values_.end() ? 0 : std::stoll(found->second)) + delta;
  values_[key] = std::to_string(sum);
  changed_.notify_all();
  return sum;
}

std::vector<std::string> run_threads(int world, const ThreadJobOptions& options,
                                     const std::function<void(Communicator&)>& body) {
  const auto store = std::make_shared<MemoryStore>();
  std::vector<std::string> failures(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        InitOptions init;
        init.rank = rank;
        init.world = world;
        init.store = store;
        init.transport = options.transport;
        init.timeout = options.timeout;
        init.init_timeout = Milliseconds(60'000);
        init.compression = options.compression.value_or(none());
        Communicator comm = qccl::init(init);
        body(comm);
      } catch (const std::exception& error) {
        failures[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

}  // namespace qccl::testing
