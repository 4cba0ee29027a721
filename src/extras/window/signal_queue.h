// The signals of a window: those that have come from each rank, and the calls that wait for one.
//
// A signal ends the oldest call that waits for its sender; without one it is kept for the next call. Calls that end
// here did not end in the engine: whoever made them end must wake threads that wait for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "engine/call/call_arguments.h"

namespace qccl::comm {

// Thread-safe. Works are completed outside of its lock. Every function returns whether a call has ended.
class SignalQueue {
 public:
  struct Waiter {
    std::shared_ptr<internal::WorkState> work;
    TimePoint deadline = kForever;
  };
  // Why a call ended that had waited for `from`, which had sent `received` signals in all.
  using Reason = std::function<ErrorInfo(int from, std::uint64_t received)>;

  explicit SignalQueue(std::size_t ranks) : senders_(ranks) {}

  bool await(int from, Waiter waiter);
  // Takes no memory.
  bool add(int from);
  // No more signals will come from the rank: calls that wait for it end with the failure, as do later ones that find no
  // signal of it.
  bool end(int from, const internal::SharedFailure& failure);
  // All calls end with the failure, later ones too, whatever has come. The first failure stays.
  bool fail(const internal::SharedFailure& failure);
  // Null until fail().
  internal::SharedFailure failure() const;

  // Ends the calls whose deadline has come.
  bool expire(TimePoint now, const Reason& reason);
  TimePoint next_deadline() const;

 private:
  struct Sender {
    std::uint64_t received = 0;
    std::uint64_t kept = 0;  // received and not taken
    std::list<Waiter> waiters{};
    internal::SharedFailure ended{};
  };

  bool expire(std::size_t index, TimePoint now, const Reason& reason);

  mutable std::mutex mutex_;  // guards the members below
  std::vector<Sender> senders_;
  internal::SharedFailure failure_;
};

}  // namespace qccl::comm
