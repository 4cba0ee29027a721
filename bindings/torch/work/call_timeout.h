// The timeout of a process group's calls: the group's own, and for a while more (c10d::Backend::addEphemeralTimeout()).
#pragma once

#include <chrono>
#include <mutex>

namespace qccl::torch_binding {

// Works that begin after extend() have the longer timeout. The first of them owns the extension, which ends with it;
// the others keep the timeout that they began with. Thread-safe.
class CallTimeout {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // The group's own.
  void set(Milliseconds own) {
    const std::lock_guard lock(mutex_);
    own_ = own;
  }
  void extend(Milliseconds by) {
    const std::lock_guard lock(mutex_);
    extension_ += by;
  }

  // The timeout of a call that begins now and sets none itself.
  Milliseconds now() const {
    const std::lock_guard lock(mutex_);
    return own_ + extension_;
  }
  // What a call that sets its own timeout adds to it.
  Milliseconds extension() const {
    const std::lock_guard lock(mutex_);
    return extension_;
  }

  // For a Work that begins: the extension that it owns. Give it to release() when the Work has ended.
  Milliseconds claim() {
    const std::lock_guard lock(mutex_);
    const Milliseconds claimed = extension_ - owned_;
    owned_ = extension_;
    return claimed;
  }
  void release(Milliseconds claimed) {
    const std::lock_guard lock(mutex_);
    extension_ -= claimed;
    owned_ -= claimed;
  }

 private:
  mutable std::mutex mutex_;
  Milliseconds own_{};
  Milliseconds extension_{};
  Milliseconds owned_{};  // the part of the extension that Works own
};

}  // namespace qccl::torch_binding
