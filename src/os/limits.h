// What the system lets this process have.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace qccl::os {

inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// Now, and as far as the process may raise it itself.
struct Limit {
  std::uint64_t soft = kUnlimited;
  std::uint64_t hard = kUnlimited;
};

Limit open_files_limit();                      // RLIMIT_NOFILE, a count
Limit locked_memory_limit();                   // RLIMIT_MEMLOCK, bytes
Limit file_size_limit();                       // RLIMIT_FSIZE, bytes; bounds shared memory too
std::uint64_t open_file_count();               // descriptors this process has; 0 if /proc does not tell
std::uint64_t spare_files();                   // descriptors that it may still open
int online_cpus();                             // cores of the host, at least 1
std::string allowed_cpus();                    // those this process may run on, "0-3,8"; empty if not known
std::uint64_t free_bytes(const char* folder);  // of its file system; 0 if there is none

// The first line of a small file such as /proc/sys/net/core/rmem_max; nothing if it can't be read.
std::optional<std::string> system_value(const std::string& path);

}  // namespace qccl::os
