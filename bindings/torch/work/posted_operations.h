// A call's operations in the library. The thread that sees the first ones end posts the call's later operation, if it
// has one. Thread-safe after post().
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "work/torch_call.h"

namespace qccl::torch_binding {

struct CallEnd {
  std::exception_ptr failure;  // torch's exception; null: success
  c10d::WorkResult result = c10d::WorkResult::SUCCESS;
  c10d::ErrorType error = c10d::ErrorType::SUCCESS;
  std::chrono::steady_clock::time_point at{};
};

class PostedOperations {
 public:
  // Takes the call's posts. Throws torch's exceptions.
  void post(TorchCall& call, Communicator group);
  // Returns when all operations have ended, with or without success. Throws only if `timeout` passes first.
  void wait(std::chrono::milliseconds timeout);
  // Call it when the first operations have ended. Returns whether there is a later one.
  bool post_later();
  // Calls `ended` once the operations posted last have ended, in the thread that ends them.
  void notify(const std::function<void()>& ended) const;

  // Call these when all operations have ended.
  CallEnd end() const;
  int source() const { return first_.empty() ? -1 : first_.front().source(); }

  std::function<std::uint64_t()> first_number() const;

 private:
  using Operations = std::vector<qccl::Work>;

  Operations first_;
  mutable std::mutex mutex_;  // guards the members below; never taken with the interpreter's lock held
  TorchCall::Post later_post_;
  std::optional<Communicator> group_;  // for later_post_; unset once that was called
  Operations later_;
  std::exception_ptr later_failure_;  // it could not be posted
};

}  // namespace qccl::torch_binding
