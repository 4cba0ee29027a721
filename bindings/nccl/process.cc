#include "process.h"

namespace qccl::nccl {

Process& process() {
  static Process* const only = new Process;
  return *only;
}

Thread& this_thread() {
  static thread_local Thread own;
  return own;
}

}  // namespace qccl::nccl
