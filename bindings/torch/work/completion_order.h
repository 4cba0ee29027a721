// The order in which callbacks on futures of a process group run: one after the other, in the
// order they were added. Ranks add them in the same order, so the effects of callbacks, above all
// further collectives, happen in the same order on every rank, whichever operation ended first.
//
// A callback may start operations, add callbacks to them and wait for those: while it runs, other threads of the pool
// complete them, again in order. Callbacks that it added and did not wait for come before everything that follows the
// callback itself. So the order is that of a tree, depth first.
//
// Collectives that callbacks start belong to a separate sequence, named by current_sequence(): they
// run beside the program's own calls, so the two could not share one order.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace qccl::torch_binding {

// Thread-safe.
class CompletionOrder {
 public:
  struct Ticket;
  using TicketPointer = std::shared_ptr<Ticket>;

  // `name` is the same on all ranks and unique among the groups of a rank.
  explicit CompletionOrder(std::string name);

  // Takes a ticket: its turn comes after all tickets of this order; inside a callback, after all tickets that this
  // callback took, on whichever order it is called. `announce` tells the program once `complete` has returned and the
  // order knows: tickets that the program takes then do not come after this one. Neither may throw.
  TicketPointer take_ticket(std::function<void()> complete, std::function<void()> announce = nullptr);

  // The operation that the ticket waits for has ended. Completes the ticket if its turn has come, and then the tickets
  // whose turn follows. Call it only from threads that callbacks may block.
  static void ended(const TicketPointer& ticket);

  // For a ticket that was just taken and waits for nothing: completes it in this thread if its turn has come. Completes
  // no other ticket. If it returns true, another thread must call ended() for this ticket: it, or one after it, still
  // has to be completed.
  static bool complete_at_once(const TicketPointer& ticket);

  // For a callback that is about to wait for this ticket, which is ready except that its turn may not come before the
  // callback returns: completes it here, unless another thread already does. Does nothing outside callbacks.
  static void complete_inside_callback(const TicketPointer& ticket);
  static bool inside_callback();

  // "" outside callbacks; inside one, a name for the callbacks of the same order and depth.
  static std::string current_sequence();

 private:
  struct Tree;
  static void take_turns(Tree& tree, TicketPointer level);
  static TicketPointer run(Ticket& ticket);

  const std::shared_ptr<Tree> tree_;
};

}  // namespace qccl::torch_binding
