// The order in which callbacks on futures of a process group run: one after the other, as they
// were added. Ranks add them in the same order, so what callbacks do, further collectives above
// all, happens in the same order on every rank, whichever operation ended first.
//
// A callback may start operations, add callbacks to them and wait for those: while it runs, they
// are completed by other threads of the pool, again in order. What it leaves behind comes before
// whatever comes after the callback itself. So the order is that of a tree, depth first.
//
// Collectives that callbacks start belong to a sequence of their own, named by current_sequence():
// they run beside the program's own calls, and could not keep one order with those.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace qccl::torch_binding {

// Thread-safe.
class CompletionOrder {
 public:
  struct Place;
  using PlacePointer = std::shared_ptr<Place>;

  // `name` is the same on all ranks and in no two groups of a rank.
  explicit CompletionOrder(std::string name);

  // Behind all places of this order; inside a callback, behind all that this callback took,
  // whatever its order. Once `complete` has returned and the order knows, `announce` tells the
  // program: what it adds then does not come behind this place. Neither may throw.
  PlacePointer take_place(std::function<void()> complete, std::function<void()> announce = nullptr);

  // What the place waits for has ended: completes it when its turn has come, and those whose turn
  // comes thereby. For threads that callbacks may block.
  static void ended(const PlacePointer& place);

  // For a place that was just taken and waits for nothing: completes it in this thread if its turn
  // has come. Completes no other; if it returns true, another thread is to call ended(), for this
  // place or for those behind it.
  static bool complete_at_once(const PlacePointer& place);

  // For a callback that is about to wait for this place, which could go ahead but for its turn,
  // and that may not come before the callback returns: completes it here, unless another thread
  // does already. Nothing outside callbacks.
  static void complete_inside_callback(const PlacePointer& place);
  static bool inside_callback();

  // "" outside callbacks; in one, a name for the callbacks of the same order and depth.
  static std::string current_sequence();

 private:
  struct Tree;
  static void take_turns(Tree& tree, PlacePointer level);
  static PlacePointer run(Place& place);

  const std::shared_ptr<Tree> tree_;
};

}  // namespace qccl::torch_binding
