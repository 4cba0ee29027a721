#include "extras/window/window_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"
#include "engine/progress/progress_driver.h"
#include "os/process.h"

namespace qccl::comm {
namespace {

// A receive waits as long as the window is open. Longer times may not end on a clock.
constexpr Milliseconds kAsLongAsItTakes = std::chrono::hours(24 * 365 * 50);

// The longest sleep, after which the thread looks again: a condition variable cannot add kForever to the time.
constexpr Nanoseconds kLongestSleep = std::chrono::hours(1);

// Its failure is known already, or is that of the group.
void wait_for_end(const Work& work) {
  try {
    work.wait();
  } catch (const Error&) {
  }
}

}  // namespace

// ---- WindowEvents

void WindowEvents::push(int member) {
  const std::lock_guard lock(mutex_);
  QCCL_CHECK(ended_.size() < ended_.capacity());  // a member has one receive
  ended_.push_back(member);
  changed_.notify_one();
}

void WindowEvents::wake() {
  const std::lock_guard lock(mutex_);
  is_woken_ = true;
  changed_.notify_one();
}

void WindowEvents::wait(std::vector<int>& ended, TimePoint deadline, const Clock& clock) {
  ended.clear();
  std::unique_lock lock(mutex_);
  const auto has_event = [this] { return is_woken_ || !ended_.empty(); };
  const Nanoseconds left = std::min(deadline - std::min(deadline, clock.now()), kLongestSleep);
  changed_.wait_for(lock, left, has_event);
  is_woken_ = false;
  ended.swap(ended_);
}

// ---- WindowService

WindowService::WindowService(Communicator group, std::span<std::byte> memory, Context& context)
    : group_(std::move(group)),
      memory_(memory),
      context_(context),
      signals_(static_cast<std::size_t>(group_.size())),
      events_(std::make_shared<WindowEvents>(static_cast<std::size_t>(group_.size()))),
      no_memory_(std::make_shared<const ErrorInfo>(memory_error().info())),
      senders_(static_cast<std::size_t>(group_.size())),
      open_(group_.size()) {
  thread_ = os::start_thread("qccl-window", [this] { run(); });
}

void WindowService::await(int from, SignalQueue::Waiter waiter) {
  wake_waiters(signals_.await(from, std::move(waiter)));
  events_->wake();
}

bool WindowService::wait_until_over(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    const TimePoint now = context_.clock().now();
    if (now >= deadline) return false;
    ended_.wait_for(lock, std::min(deadline - now, kLongestSleep));
  }
  return true;
}

internal::SharedFailure WindowService::join() {
  thread_.join();
  return signals_.failure();
}

void WindowService::run() {
  std::vector<int> ended;
  ended.reserve(senders_.size());
  for (int member = 0; member < group_.size(); ++member) advance(member);
  while (open_ > 0) {
    events_->wait(ended, signals_.next_deadline(), context_.clock());
    for (const int member : ended) advance(member);
    expire();
  }
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  ended_.notify_all();
}

// Goes on with a member until its next receive is under way, or none follows.
void WindowService::advance(int member) {
  Sender& sender = senders_[static_cast<std::size_t>(member)];
  try {
    while (sender.receive.done()) {
      if (const auto error = sender.receive.error()) return lose(member, *error);
      if (!take(member)) return end(member);
    }
    sender.receive.notify([events = events_, member] { events->push(member); });
  } catch (const Error& error) {
    lose(member, error.info());
  } catch (const std::bad_alloc&) {
    lose(member, *no_memory_);
  }
}

// Takes what the receive has brought and posts the next one. False: the member has said goodbye.
bool WindowService::take(int member) {
  Sender& sender = senders_[static_cast<std::size_t>(member)];
  if (sender.awaited == Awaited::header) {
    if (static_cast<HeaderKind>(sender.header[0]) == HeaderKind::goodbye) return false;
    if (take_header(member)) return true;
  }
  if (sender.awaited != Awaited::nothing) wake_waiters(signals_.add(member));
  listen(member);
  return true;
}

// True if a put's bytes are to come, whose receive is posted. Otherwise the header is all of a put or signal.
bool WindowService::take_header(int member) {
  Sender& sender = senders_[static_cast<std::size_t>(member)];
  const auto [kind, offset, bytes] = sender.header;
  if (static_cast<HeaderKind>(kind) == HeaderKind::signal) return false;
  if (static_cast<HeaderKind>(kind) != HeaderKind::put || !fits(offset, bytes, memory_.size())) {
    throw Error(failure_of(member, ErrorKind::corrupt_data,
                           fmt::format("sent a header of kind {} for {} bytes at offset {} of this rank's window of "
                                       "{} bytes",
                                       kind, bytes, offset, memory_.size())));
  }
  if (bytes == 0) return false;
  QCCL_CHECK(sender.receive.done());
  sender.receive = group_.recv_async(memory_.data() + offset, bytes, DataType::uint8, member,
                                     {.tag = kBytesTag, .timeout = kAsLongAsItTakes, .log_name = "window"});
  sender.awaited = Awaited::bytes;
  return true;
}

void WindowService::listen(int member) {
  Sender& sender = senders_[static_cast<std::size_t>(member)];
  QCCL_CHECK(sender.receive.done());
  sender.receive = group_.recv_async(sender.header.data(), sender.header.size(), DataType::uint64, member,
                                     {.tag = kHeaderTag, .timeout = kAsLongAsItTakes, .log_name = "window"});
  sender.awaited = Awaited::header;
}

// The window is lost, and with it the receives of the other members.
void WindowService::lose(int member, const ErrorInfo& failure) {
  internal::SharedFailure kept = no_memory_;
  try {
    kept = std::make_shared<const ErrorInfo>(failure);
  } catch (const std::bad_alloc&) {
  }
  wake_waiters(signals_.fail(kept));
  for (bool is_aborted = false; !is_aborted;) {
    try {
      group_.abort(kept->message);  // keeps an earlier failure of the group
      is_aborted = true;
    } catch (const Error&) {
      os::pause(std::chrono::milliseconds(10));  // until there is memory
    }
  }
  wait_for_end(senders_[static_cast<std::size_t>(member)].receive);
  end(member);
}

void WindowService::end(int member) {
  internal::SharedFailure ended = no_memory_;
  try {
    ended = std::make_shared<const ErrorInfo>(
        failure_of(member, ErrorKind::peer_lost, "has closed the window, and all its signals are taken"));
  } catch (const std::bad_alloc&) {
  }
  wake_waiters(signals_.end(member, ended));
  QCCL_CHECK(open_ > 0);
  --open_;
}

void WindowService::expire() {
  try {
    wake_waiters(signals_.expire(context_.clock().now(), [this](int from, std::uint64_t received) {
      return failure_of(from, ErrorKind::deadline_exceeded,
                        fmt::format("has sent {} signals so far, and no further one before the deadline of "
                                    "wait_signal(); the window stays usable",
                                    received));
    }));
  } catch (const std::bad_alloc&) {
    // The next round tries again.
  }
}

// A thread that waits for a Work that has not ended in the engine looks again after the engine's next action.
void WindowService::wake_waiters(bool any_ended) {
  if (any_ended) context_.driver().with_engine([](engine::Engine&) {});
}

ErrorInfo WindowService::failure_of(int member, ErrorKind kind, const std::string& what) const {
  const std::vector<int> ranks = group_.world_ranks();
  const int peer = ranks[static_cast<std::size_t>(member)];
  const int own = ranks[static_cast<std::size_t>(group_.rank())];
  return {.kind = kind,
          .message = fmt::format("QCCL rank {}, group '{}': rank {} {}", own, group_.name(), peer, what),
          .rank = own,
          .peer = peer,
          .operation = "wait_signal"};
}

}  // namespace qccl::comm
