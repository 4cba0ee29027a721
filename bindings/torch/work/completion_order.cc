#include "work/completion_order.h"

#include <deque>
#include <mutex>
#include <utility>

namespace qccl::torch_binding {

struct CompletionOrder::Tree {
  std::string name;
  std::mutex mutex;  // guards all tickets; not held while completing one
  TicketPointer root;
};

struct CompletionOrder::Ticket : std::enable_shared_from_this<Ticket> {
  std::shared_ptr<Tree> tree;  // null in the root
  TicketPointer parent;        // null in the root
  std::deque<TicketPointer> children;
  std::function<void()> complete;
  std::function<void()> announce;
  int depth = 0;
  bool ended = false;
  bool started = false;
  bool returned = false;
};

namespace {

// The ticket whose callback this thread runs.
thread_local CompletionOrder::TicketPointer current_ticket;

}  // namespace

CompletionOrder::CompletionOrder(std::string name) : tree_(std::make_shared<Tree>()) {
  tree_->name = std::move(name);
  tree_->root = std::make_shared<Ticket>();
}

CompletionOrder::TicketPointer CompletionOrder::take_ticket(std::function<void()> complete,
                                                            std::function<void()> announce) {
  auto ticket = std::make_shared<Ticket>();
  ticket->tree = current_ticket ? current_ticket->tree : tree_;
  ticket->parent = current_ticket ? current_ticket : tree_->root;
  ticket->depth = ticket->parent->depth + 1;
  ticket->complete = std::move(complete);
  ticket->announce = std::move(announce);
  const std::lock_guard lock(ticket->tree->mutex);
  ticket->parent->children.push_back(ticket);
  return ticket;
}

void CompletionOrder::ended(const TicketPointer& ticket) {
  {
    const std::lock_guard lock(ticket->tree->mutex);
    ticket->ended = true;
  }
  take_turns(*ticket->tree, ticket->parent);
}

bool CompletionOrder::complete_at_once(const TicketPointer& ticket) {
  const auto& siblings = ticket->parent->children;
  {
    const std::lock_guard lock(ticket->tree->mutex);
    if (siblings.front() != ticket) return true;
    ticket->started = true;
  }
  run(*ticket);
  const std::lock_guard lock(ticket->tree->mutex);
  return !siblings.empty() && siblings.front()->ended && !siblings.front()->started;
}

void CompletionOrder::complete_inside_callback(const TicketPointer& ticket) {
  if (!current_ticket) return;
  {
    const std::lock_guard lock(ticket->tree->mutex);
    if (std::exchange(ticket->started, true)) return;
  }
  take_turns(*ticket->tree, run(*ticket));
}

// Completes the children of `level` in order, and then the tickets that follow `level`.
void CompletionOrder::take_turns(Tree& tree, TicketPointer level) {
  while (true) {
    TicketPointer first;
    {
      const std::lock_guard lock(tree.mutex);
      if (level->children.empty()) return;
      first = level->children.front();
      if (!first->ended || first->started) return;
      first->started = true;
    }
    level = run(*first);
  }
}

// Returns the level on which the order continues: the ticket itself while it has children, else the first ancestor that
// is still running or has children left.
CompletionOrder::TicketPointer CompletionOrder::run(Ticket& ticket) {
  // They may hold objects that need the interpreter's lock to be freed, so they are freed without the tree's lock.
  const auto complete = std::exchange(ticket.complete, nullptr);
  const auto announce = std::exchange(ticket.announce, nullptr);
  TicketPointer level = ticket.shared_from_this();
  const auto outer = std::exchange(current_ticket, level);
  complete();
  current_ticket = outer;
  {
    const std::lock_guard lock(ticket.tree->mutex);
    ticket.returned = true;
    while (level->returned && level->children.empty()) {  // the root never returns
      const TicketPointer done = std::exchange(level, level->parent);
      std::erase(level->children, done);
    }
  }
  if (announce) announce();
  return level;
}

bool CompletionOrder::inside_callback() { return current_ticket != nullptr; }

std::string CompletionOrder::current_sequence() {
  if (!current_ticket) return "";
  return current_ticket->tree->name + "/" + std::to_string(current_ticket->depth);
}

}  // namespace qccl::torch_binding
