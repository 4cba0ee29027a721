// Stacks of a rank's threads, for the report of a rank that hangs or crashes. In the rank, a signal handler sends the
// raw addresses of the thread it runs on; the test's process names them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qccl::testing {

// The signal that makes a thread of a rank send its stack.
int stack_signal();

// In a rank: from now on stack_signal() sends a `stack` packet on `channel`, and the signals of a crash send a `crash`
// packet before they end the process. Handlers that the program (or a sanitizer) has already installed stay in place.
void install_stack_handlers(int channel);

// A mapped file of a process.
struct Module {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uintptr_t base = 0;  // addresses in the file are relative to this
  std::string path{};
};
// The mapped files of a running process; empty for one that does not run.
std::vector<Module> modules_of(pid_t process);

// Describes `addresses`, as packed by the handlers, with one line per frame: function and source line if addr2line is
// installed and knows them, else file and offset.
std::string describe_stack(const std::vector<Module>& modules, std::string_view addresses);

struct Thread {
  pid_t id = 0;
  std::string name{};
  char state = '?';        // as in /proc: R running, S asleep, T stopped
  std::string waits_in{};  // the kernel function it waits in; empty if unknown
};
std::vector<Thread> threads_of(pid_t process);

}  // namespace qccl::testing
