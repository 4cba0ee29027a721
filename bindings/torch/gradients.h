// The sums of a group whose program has chosen no compression: that of the environment is for gradients only, which
// python/qccl/_gradients.py tells from all other sums.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "qccl/communicator.h"

namespace qccl::torch_binding {

// Thread-safe.
class EnvironmentSums {
 public:
  // `name` is the group's in the log.
  EnvironmentSums(Communicator group, std::string name, bool applies)
      : group_(std::move(group)), name_(std::move(name)), applies_(applies) {}

  // The program has chosen a compression.
  void end() { applies_ = false; }

  // Turns compression off for the call, unless it has chosen its own or sums gradients. Takes the interpreter's lock if
  // the call would be compressed. The group's rank 0 logs once which sums are compressed, and once which are not.
  // Throws torch's exceptions.
  void restrict(CollectiveCall& call);

 private:
  struct Caller {
    bool sums_gradients;
    std::string name;
  };
  static Caller find_caller();
  void log_once(const Compression& compression, const Caller& caller);

  const Communicator group_;
  const std::string name_;
  std::atomic<bool> applies_;
  std::array<std::atomic<bool>, 2> logged_{};  // of sums of gradients, and of others
};

}  // namespace qccl::torch_binding
