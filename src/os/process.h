// Facts about this process and its host, the system's limits on it, and the library's threads in it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"

namespace qccl::os {

int process_id();
// The host's name; empty if the system does not say. Names repeat: use boot_id() to tell hosts apart.
std::string host_name();
// Differs between hosts and between boots of one host; the same in every container of a host. Empty if unknown.
std::string boot_id();
// The network namespace of this process; empty if the system does not tell. Abstract unix sockets reach no further.
std::string network_namespace();
// As in /proc/PID/stat: 'R' runs, 'S' sleeps, 'T' is stopped, ...; '?' if there is no such process.
char process_state(int process);
// The owner of the process; empty if there is no such process.
std::optional<std::uint32_t> process_user(int process);
// 64 bits from the kernel's random generator.
std::uint64_t random_nonce();

// ---- cores

int available_cpus();        // that this process may run on, at least 1
int first_available_cpu();   // the lowest of them
std::string allowed_cpus();  // as "0-3,8"; empty if unknown
int online_cpus();           // of the host, at least 1

// ---- limits

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
std::uint64_t free_bytes(const char* folder);  // of its file system; 0 if the folder does not exist

// The first line of a small file such as /proc/sys/net/core/rmem_max; empty if it cannot be read.
std::optional<std::string> system_value(const std::string& path);

// ---- threads

// Starts a thread that takes no signals (the program gets them) and appears as `name` (at most 15 characters) in ps and
// debuggers. The owner joins it; in a forked child, where it does not exist, the owner detaches it (see ForkMark).
std::thread start_thread(const char* name, std::function<void()> body);

// Pauses this thread before a retry that has no event to wait for.
void pause(Nanoseconds duration);

}  // namespace qccl::os
