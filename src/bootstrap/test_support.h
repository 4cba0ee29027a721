// Shared by the tests of this layer.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/expect_failure.h"
#include "bootstrap/launcher/launch_identity.h"
#include "bootstrap/protocol/formats.h"
#include "os/fd.h"
#include "qccl/store.h"
#include "wire/frame.h"

namespace qccl::bootstrap {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline const SteadyClock kClock;

inline constexpr std::uint64_t kTestJob = 42;
inline wire::Hello hello_of(std::uint32_t rank, std::uint32_t target = 0) {
  return {.rank = rank, .target = target, .world = 4, .job = kTestJob};
}

inline TimePoint soon(Nanoseconds duration = seconds(30)) { return kClock.now() + duration; }

// What a newcomer answers when it is called at a door.
inline std::string some_answer() { return encode_record({.process = "process 1 on here", .card = "card"}); }

// The error that `call` throws, as a result.
Status caught(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return Failure(error.info());
  }
  return {};
}

// Allows a thousand connections with both ends in this process.
inline void allow_many_descriptors() {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// A connection from another address of this host.
inline os::Fd connection_from(const char* address, std::uint16_t port) {
  os::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{}, server{};
  own.sin_family = server.sin_family = AF_INET;
  ::inet_pton(AF_INET, address, &own.sin_addr);
  server.sin_port = htons(port);
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&server), sizeof(server)), 0);
  return fd;
}

// A store of this process, which never deletes anything, like a launcher's.
class MemoryStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::optional<std::string> get(const std::string& key, milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) return std::nullopt;
    return values_[key];
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const std::lock_guard lock(mutex_);
    auto& value = values_[key];
    const std::int64_t sum = (value.empty() ? 0 : std::stoll(value)) + delta;
    value = std::to_string(sum);
    changed_.notify_all();
    return sum;
  }
  // Blocks until `key` exists.
  void await(const std::string& key) { ASSERT_TRUE(get(key, seconds(30)).has_value()) << key; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace qccl::bootstrap
