// The order of the calls that callbacks on a process group's futures make. A callback runs as soon as its future is
// complete, but its first call to a group waits until every callback that was added earlier has returned. Ranks add
// callbacks in the same order, so these calls are in the same order on every rank, whichever operation ended first.
//
// A callback may add callbacks of its own. Those come before everything that follows the callback itself, even if it
// does not wait for them: the order is that of a tree, depth first.
//
// Callbacks run beside the program's own calls, so the two could not share one order: the calls of callbacks belong to
// separate sequences.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace qccl::torch_binding {

// Thread-safe.
class CallbackOrder {
 public:
  struct Turn;
  using TurnPointer = std::shared_ptr<Turn>;

  // `name` is the same on all ranks and unique among the groups of a rank.
  explicit CallbackOrder(std::string name);

  // The turn of a callback that is added now: after all callbacks of this order; inside a callback, after all that this
  // callback added, on whichever order it is called. The turn ends with the last reference to it.
  TurnPointer add();

  // While it exists, this thread runs a callback. Drops the turn at its end.
  class Running {
   public:
    explicit Running(TurnPointer turn);
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    TurnPointer outer_;
  };
  static bool inside_callback();

  // The name of the sequence that the calls of this thread belong to: "" outside callbacks; inside one, the same for
  // callbacks of the same order and depth. Waits there for the callback's turn; nothing if `limit` passes first.
  static std::optional<std::string> wait_for_turn(std::chrono::milliseconds limit);

  // For a callback that is about to wait until another one has returned: if that one comes later, waits for the
  // callback's own turn, and makes the other one's the next. Does nothing outside callbacks.
  static void let_pass(const std::weak_ptr<Turn>& other);

 private:
  struct Tree;
  const std::shared_ptr<Tree> tree_;
};

}  // namespace qccl::torch_binding
