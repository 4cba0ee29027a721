#pragma once

#include <memory>
#include <utility>

#include "engine/call/call_arguments.h"

namespace qccl::engine {

// Works of operations that have ended, to be completed once no lock is held: first in, first out. The list runs through
// the Works themselves, because an operation can end when there is no memory left. One thread.
class EndedWorks {
 public:
  // One by one: a long list would be a deep recursion.
  ~EndedWorks() {
    while (pop() != nullptr) {
    }
  }

  void push(std::shared_ptr<internal::WorkState> work, internal::SharedFailure failure) {
    internal::WorkState* const added = work.get();
    added->set_failure(std::move(failure));
    (first_ == nullptr ? first_ : last_->next_ended) = std::move(work);
    last_ = added;
  }
  // The first, or null.
  std::shared_ptr<internal::WorkState> pop() {
    if (first_ == nullptr) return nullptr;
    auto taken = std::move(first_);
    first_ = std::move(taken->next_ended);
    return taken;
  }

 private:
  std::shared_ptr<internal::WorkState> first_;
  internal::WorkState* last_ = nullptr;  // while there is a first
};

}  // namespace qccl::engine
