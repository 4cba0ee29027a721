#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/call/call_arguments.h"

namespace qccl::comm {

class Context;

// Posts a group's calls to the engine, or records them between group_start() and group_end(), and bounds how many are
// in flight. Thread-safe. A call that fails for want of memory cancels the recording, as a wrong call does.
class CallPoster {
 public:
  // For the group of this identity, with so many ranks.
  CallPoster(std::uint64_t group, std::size_t ranks);

  static void make_work(engine::CallArguments& arguments, Context& context);
  // Adds the call to this thread's recording; returns false and does nothing if there is none.
  static bool record(engine::CallArguments& arguments, Context& context);

  // Records the call, or drives it to its end and throws its failure. Returns the rank that a received message came
  // from, else -1.
  static int run(engine::CallArguments&& arguments, Context& context);
  // Records the call, or posts it, and returns its work.
  std::shared_ptr<internal::WorkState> post(engine::CallArguments arguments, const std::shared_ptr<Context>& context);

  // The same for several calls, which are not recorded, as one. run() returns the last call's result.
  int run(engine::ArgumentsList calls, Context& context);
  std::shared_ptr<internal::WorkState> post(engine::ArgumentsList calls, std::shared_ptr<internal::WorkState> whole,
                                            const std::shared_ptr<Context>& context);

  // Waits until no operation of the group is in flight; each has a deadline. Takes no memory. Call it once.
  void wait_until_quiet(Context& context);

 private:
  void make_room(Context& context, std::span<engine::CallArguments> calls);
  engine::ArgumentsList post_all_but_last(Context& context, engine::ArgumentsList calls);

  const std::uint64_t group_;
  const std::size_t limit_;  // of collectives in flight
  const std::shared_ptr<std::atomic<std::size_t>> in_flight_ = std::make_shared<std::atomic<std::size_t>>(0);
  const std::shared_ptr<internal::WorkState> quiet_ = std::make_shared<internal::WorkState>();
};

}  // namespace qccl::comm
