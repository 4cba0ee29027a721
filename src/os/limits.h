// The system's limits on this process.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace qccl::os {

inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// soft: the current limit. hard: how far the process may raise it itself.
struct Limit {
  std::uint64_t soft = kUnlimited;
  std::uint64_t hard = kUnlimited;
};

Limit open_files_limit();                      // RLIMIT_NOFILE, a count
Limit locked_memory_limit();                   // RLIMIT_MEMLOCK, bytes
Limit file_size_limit();                       // RLIMIT_FSIZE, bytes; bounds shared memory too
std::uint64_t open_file_count();               // this process's descriptors; 0 if /proc does not tell
std::uint64_t spare_files();                   // how many more it may open
int online_cpus();                             // cores of the host, at least 1
std::string allowed_cpus();                    // cores this process may run on, "0-3,8"; empty if unknown
std::uint64_t free_bytes(const char* folder);  // of its file system; 0 if the folder does not exist

// The first line of a small file such as /proc/sys/net/core/rmem_max; empty if it cannot be read.
std::optional<std::string> system_value(const std::string& path);

}  // namespace qccl::os
