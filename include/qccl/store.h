// Where ranks meet: a small key-value store that all of them reach.
// Implement this interface to bring your own; the library has a TCP store and reads torchrun's.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
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

// A store that this process serves over TCP, for jobs whose ranks get its address by other means. Any number of jobs
// may use it. Its add(key, 0) makes no key. With a key (QCCL_KEY_FILE, ...; docs/security.md) it serves only processes
// that have it, without one every process that reaches the port. A thread of its own answers.
class StoreServer {
 public:
  // Listens on a free port. Throws Error: resource_exhausted without ports or descriptors, invalid_argument if no
  // interface passes QCCL_SOCKET_IFNAME or the key is wrong.
  StoreServer();
  // As close(0). Does nothing in a forked child.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // For connect_store(): "10.0.0.1:40000", or several with commas, the most likely to work first.
  const std::string& address() const;
  // Takes no more clients, and returns once those that are there have left, at most after `linger`.
  void close(std::chrono::milliseconds linger);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The store of a StoreServer, for InitOptions::store. Everything it does ends within the timeout from now on; unset:
// QCCL_INIT_TIMEOUT, else 300 s. Throws Error: peer_lost if all addresses refuse, or none answers within the timeout;
// invalid_argument for text that is no address.
std::shared_ptr<Store> connect_store(const std::string& address,
                                     std::optional<std::chrono::milliseconds> timeout = std::nullopt);

}  // namespace qccl
