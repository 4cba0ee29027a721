// Operations that have ended well, kept to serve the next call like theirs: its plan is made and its
// memory there, so that a program that repeats its calls neither plans nor allocates again.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/operation.h"

namespace qccl::engine {

class RetiredOperations {
 public:
  RetiredOperations() { kept_.reserve(kKept); }

  // One that can serve this call, or null.
  std::unique_ptr<Operation> take(const Group& group, const CallArguments& arguments) {
    // From the back, where those that were used last are.
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(),
                                    [&](const auto& operation) { return operation->serves(group, arguments); });
    if (found == kept_.rend()) return nullptr;
    std::unique_ptr<Operation> operation = std::move(*found);
    kept_.erase(std::next(found).base());
    return operation;
  }
  void put(std::unique_ptr<Operation> operation) {
    operation->retire();
    if (kept_.size() == kKept) kept_.erase(kept_.begin());
    kept_.push_back(std::move(operation));
  }
  // The group is about to go.
  void forget(const Group& group) {
    std::erase_if(kept_, [&](const auto& operation) { return &operation->group() == &group; });
  }

 private:
  // As many different calls as a program repeats; a large plan's operation of 64 ranks takes some 200 KiB.
  static constexpr std::size_t kKept = 32;
  std::vector<std::unique_ptr<Operation>> kept_;
};

}  // namespace qccl::engine
