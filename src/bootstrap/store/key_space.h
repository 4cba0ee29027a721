// One job's keys in a Store shared with others, and the Store's exceptions as Results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "qccl/store.h"

namespace qccl::bootstrap {

// "qccl/JOB/RESTART/"
std::string key_prefix(const std::string& job, std::uint32_t restart);

class KeySpace {
 public:
  // Keys go under key_prefix(). `store` and `clock` outlive this.
  KeySpace(Store& store, const std::string& job, std::uint32_t restart, const Clock& clock);

  // Exceptions of the Store become results: an Error unchanged, anything else as Unsupported.
  Status set(const std::string& key, const std::string& value);
  // Waits for the key until the deadline; empty if it does not exist by then.
  Result<std::optional<std::string>> get(const std::string& key, TimePoint deadline);
  Result<std::optional<std::string>> get_now(const std::string& key) { return get(key, TimePoint{}); }
  Result<std::int64_t> add(const std::string& key, std::int64_t delta);

 private:
  Store& store_;
  const Clock& clock_;
  std::string prefix_;
};

}  // namespace qccl::bootstrap
