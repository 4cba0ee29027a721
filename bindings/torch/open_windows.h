// The windows of a job's groups that are open on this rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "qccl/communicator.h"
#include "qccl/window.h"
#include "work/completion_pool.h"

namespace qccl::torch_binding {

// A window and the tensor that others write to, which lives as long.
struct OpenWindow {
  qccl::Window window;
  at::Tensor tensor;
};

// Keeps none of them open. Thread-safe. Throws qccl::Error.
class OpenWindows {
 public:
  explicit OpenWindows(std::shared_ptr<CompletionPool> pool) : pool_(std::move(pool)) {}

  // A window over the tensor; collective over the group.
  std::shared_ptr<OpenWindow> open(Communicator& group, const at::Tensor& tensor, std::uint64_t label);
  // Closes a window on a thread of the pool, because that waits for the other ranks.
  void close_in_background(std::shared_ptr<OpenWindow> open);
  // The same, or abort, for those of the group of this name; of all groups without a name.
  void close_in_background(const std::string& group = {});
  void abort(const std::string& reason, const std::string& group = {});

 private:
  struct WindowOfGroup {
    std::string group;
    std::weak_ptr<OpenWindow> window;
  };
  std::vector<std::shared_ptr<OpenWindow>> windows_of(const std::string& group);

  const std::shared_ptr<CompletionPool> pool_;
  std::mutex mutex_;
  std::vector<WindowOfGroup> windows_;  // some of them closed; guarded by mutex_
};

}  // namespace qccl::torch_binding
