// Where ranks meet: a small key-value store that all of them reach.
// Implement this interface to bring your own; the library has a TCP store and reads torchrun's.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace qccl {

// Calls come from one thread at a time and may throw Error, which init() then throws. Keys and values are bytes.
class Store {
 public:
  virtual ~Store() = default;
  // Sets or replaces the value.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key exists; returns nothing if it does not within the timeout.
  virtual std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Adds atomically to a decimal counter (a missing key counts as 0) and returns the sum.
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;
};

}  // namespace qccl
