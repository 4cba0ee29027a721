// Facts about this process and host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace qccl::os {

int process_id();
// The host's name; empty if the system does not say. Names repeat: use boot_id() to tell hosts apart.
std::string host_name();
// Differs between hosts and between boots of one host; the same in every container of a host. Empty if the kernel does
// not tell.
std::string boot_id();
// The network namespace of this process; empty if the system does not tell. Abstract unix sockets reach no further.
std::string network_namespace();
// Cores this process may run on, at least 1.
int available_cpus();
// The lowest core this process may run on.
int first_available_cpu();
// As in /proc/PID/stat: 'R' runs, 'S' sleeps, 'T' is stopped, ...; '?' if there is no such process.
char process_state(int process);
// The owner of the process; empty if there is no such process.
std::optional<std::uint32_t> process_user(int process);
// 64 bits from the kernel's random generator.
std::uint64_t random_nonce();

}  // namespace qccl::os
