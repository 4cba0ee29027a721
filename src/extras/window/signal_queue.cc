#include "extras/window/signal_queue.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace qccl::comm {
namespace {

using internal::SharedFailure;
using Waiters = std::list<SignalQueue::Waiter>;

bool complete(const Waiters& waiters, const SharedFailure& failure) {
  for (const SignalQueue::Waiter& each : waiters) {
    each.work->set_failure(failure);
    each.work->complete();
  }
  return !waiters.empty();
}

}  // namespace

bool SignalQueue::await(int from, Waiter waiter) {
  Waiters waiters;
  waiters.push_back(std::move(waiter));
  SharedFailure failure;
  {
    const std::lock_guard lock(mutex_);
    Sender& sender = senders_[static_cast<std::size_t>(from)];
    failure = failure_;
    if (failure == nullptr && sender.kept == 0) {
      if (sender.ended == nullptr) {
        sender.waiters.splice(sender.waiters.end(), waiters);
        return false;
      }
      failure = sender.ended;
    }
    if (failure == nullptr) --sender.kept;
    QCCL_CHECK(sender.waiters.empty() && sender.kept <= sender.received);
  }
  return complete(waiters, failure);
}

bool SignalQueue::add(int from) {
  Waiters first;
  {
    const std::lock_guard lock(mutex_);
    Sender& sender = senders_[static_cast<std::size_t>(from)];
    QCCL_CHECK(sender.ended == nullptr);
    QCCL_CHECK(sender.waiters.empty() || sender.kept == 0);
    ++sender.received;
    if (sender.waiters.empty()) {
      ++sender.kept;
    } else {
      first.splice(first.end(), sender.waiters, sender.waiters.begin());
    }
  }
  return complete(first, nullptr);
}

bool SignalQueue::end(int from, const SharedFailure& failure) {
  Waiters waiters;
  {
    const std::lock_guard lock(mutex_);
    Sender& sender = senders_[static_cast<std::size_t>(from)];
    sender.ended = failure;
    waiters.swap(sender.waiters);
  }
  return complete(waiters, failure);
}

bool SignalQueue::fail(const SharedFailure& failure) {
  Waiters waiters;
  SharedFailure first;
  {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr) failure_ = failure;
    first = failure_;
    for (Sender& sender : senders_) waiters.splice(waiters.end(), sender.waiters);
  }
  return complete(waiters, first);
}

SharedFailure SignalQueue::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool SignalQueue::expire(TimePoint now, const Reason& reason) {
  bool any = false;
  for (std::size_t index = 0; index < senders_.size(); ++index) any |= expire(index, now, reason);
  return any;
}

// The failure is made before a waiter is taken out: without memory for it none is lost.
bool SignalQueue::expire(std::size_t index, TimePoint now, const Reason& reason) {
  const auto is_late = [now](const Waiter& each) { return each.deadline <= now; };
  Sender& sender = senders_[index];
  std::unique_lock lock(mutex_);
  if (std::ranges::none_of(sender.waiters, is_late)) return false;
  const std::uint64_t received = sender.received;
  lock.unlock();
  const auto failure = std::make_shared<const ErrorInfo>(reason(static_cast<int>(index), received));
  Waiters late;
  lock.lock();
  for (auto each = sender.waiters.begin(); each != sender.waiters.end();) {
    const auto next = std::next(each);
    if (is_late(*each)) late.splice(late.end(), sender.waiters, each);
    each = next;
  }
  lock.unlock();
  return complete(late, failure);
}

TimePoint SignalQueue::next_deadline() const {
  const std::lock_guard lock(mutex_);
  TimePoint next = kForever;
  for (const Sender& sender : senders_) {
    for (const Waiter& each : sender.waiters) next = std::min(next, each.deadline);
  }
  return next;
}

}  // namespace qccl::comm
