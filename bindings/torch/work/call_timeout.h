// The timeout of a process group's calls: the group's own, and for a while more (c10d::Backend::addEphemeralTimeout()).
#pragma once

#include <atomic>
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
    extension_ = extension_.load() + by;
  }

  // The timeout of a call that begins now and sets none itself.
  Milliseconds now() const { return own_.load() + extension_.load(); }
  // Calls apply(now()) if that has changed since the last call.
  template <class Apply>
  void apply_change(const Apply& apply) {
    if (applied_.load() == now()) return;
    const std::lock_guard lock(mutex_);
    const Milliseconds timeout = now();
    apply(timeout);
    applied_ = timeout;
  }
  // What a call that sets its own timeout adds to it.
  Milliseconds extension() const { return extension_; }

  // For a Work that begins: the extension that it owns. Give it to release() when the Work has ended.
  Milliseconds claim() {
    if (extension() == Milliseconds(0)) return Milliseconds(0);
    const std::lock_guard lock(mutex_);
    const Milliseconds claimed = extension() - owned_;
    owned_ = extension_;
    return claimed;
  }
  void release(Milliseconds claimed) {
    if (claimed == Milliseconds(0)) return;
    const std::lock_guard lock(mutex_);
    extension_ = extension() - claimed;
    owned_ -= claimed;
  }

 private:
  std::mutex mutex_;  // of those who change what follows
  std::atomic<Milliseconds> own_{};
  std::atomic<Milliseconds> extension_{};
  std::atomic<Milliseconds> applied_{};
  Milliseconds owned_{};  // the part of the extension that Works own
};

}  // namespace qccl::torch_binding
