// Environment variables: every QCCL_ variable, read once, which docs/options.md lists for users, and any other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "qccl/device.h"
#include "qccl/types.h"

namespace qccl {

// The variable's value; empty if it is unset or empty. Nothing else reads the environment.
inline std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

// True if the variable is there without a value, which environment() does not tell from one that is not there.
inline bool is_empty_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value == '\0';
}

// Input bytes of a slice; half of the L2 cache holds it and its frames.
inline constexpr std::size_t kDefaultSliceBytes = 128 * 1024;
// For ranks that share cores, so that they wait for fewer turns; and for TCP inside a host, to need fewer system calls.
inline constexpr std::size_t kLongSliceBytes = 256 * 1024;

// One machine that acts as several: `hosts` hosts with `ranks` ranks each, in rank order.
struct HostGrid {
  int hosts = 1;
  int ranks = 1;
};

// The settings of a job. Durations in the environment are seconds; fractions are allowed.
struct Options {
  TransportChoice transport = TransportChoice::automatic;  // QCCL_TRANSPORT=auto|shm|tcp
  std::optional<std::string> algorithm;                    // QCCL_ALGORITHM, a name
  std::optional<HostGrid> hosts;                           // QCCL_HOSTS=2x4
  std::optional<std::string> sites;                        // QCCL_SITES=0-3,4-7, ranks near each other
  std::optional<std::string> profile;                      // QCCL_PROFILE, a file
  std::optional<std::string> compression;                  // QCCL_COMPRESSION, a specification
  std::uint64_t compression_min_bytes = 64 * 1024;         // QCCL_COMPRESSION_MIN_BYTES
  std::optional<std::string> link_rate;                    // QCCL_LINK_RATE, for example 1gbit
  Nanoseconds timeout = std::chrono::seconds(300);         // QCCL_TIMEOUT, of each operation
  Nanoseconds init_timeout = std::chrono::seconds(300);    // QCCL_INIT_TIMEOUT, to find all ranks
  Nanoseconds peer_timeout = std::chrono::seconds(60);     // QCCL_PEER_TIMEOUT, silence while waited for
  std::optional<std::size_t> slice_bytes{};                // QCCL_SLICE_BYTES, 4096 to 262144
  std::optional<std::uint64_t> window_bytes{};             // QCCL_WINDOW_BYTES, 1 MiB to 1 GiB
  std::optional<int> connections{};                        // QCCL_CONNECTIONS=auto|1..16; empty: auto
  std::string congestion = "auto";                         // QCCL_CONGESTION, between distant ranks; system
  std::uint64_t seed = 0;                                  // QCCL_SEED, of codecs that draw random numbers
  bool checksum = true;                                    // QCCL_CHECKSUM=0|1, payloads between hosts
  std::optional<bool> encryption{};                        // QCCL_ENCRYPTION=on|off; empty: on if the job has a key
  std::optional<Nanoseconds> spin{};                       // QCCL_SPIN_US, polling before sleep
  std::uint64_t pinned_limit = std::uint64_t{1} << 30;     // QCCL_PINNED_LIMIT, bytes of host memory for devices
  bool open = false;                                       // QCCL_OPEN=on|off, lets newcomers wait
  std::uint16_t door_port = 0;                             // QCCL_DOOR_PORT, where they come to; 0: any
  std::optional<std::string> join{};                       // QCCL_JOIN, the doors of a job to join
  std::optional<StreamOrder> stream_order{};               // QCCL_STREAM_ORDER=host|gate; empty: the binding's choice
  std::string device_kernels{};                            // QCCL_DEVICE_KERNELS, a file or off; empty: built in
  std::optional<std::string> log_file;                     // QCCL_LOG_FILE, prefix of the logs' file names
  std::optional<std::string> dashboard{};                  // QCCL_DASHBOARD=HOST:PORT, where rank 0 serves a page
  std::optional<std::string> metrics_file{};               // QCCL_METRICS_FILE, for Prometheus
  Nanoseconds metrics_every = std::chrono::seconds(10);    // QCCL_METRICS_SECONDS, between two writes of that file

  // QNCCL's own variables, read only if RING_ALLREDUCE_VERSION=new; QCCL_COMPRESSION overrides them. A specification
  // such as "minmax:bits=8,bucket_size=1024".
  std::optional<std::string> qnccl_compression;

  // InvalidArgument names the variable, its value and what is allowed.
  static Result<Options> from_environment();
};

}  // namespace qccl
