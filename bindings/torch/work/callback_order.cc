#include "work/callback_order.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <utility>

namespace qccl::torch_binding {

struct CallbackOrder::Tree {
  std::string name;
  std::mutex mutex;  // guards parents and children
  std::condition_variable changed;
  TurnPointer root;
};

// It lives as long as its callback or one that this callback added.
struct CallbackOrder::Turn {
  std::shared_ptr<Tree> tree;  // null in the root
  TurnPointer parent;          // null in the root
  std::list<Turn*> children;
  std::list<Turn*>::iterator place;  // in the parent's children

  ~Turn() {
    if (!parent) return;
    const std::lock_guard lock(tree->mutex);
    parent->children.erase(place);
    tree->changed.notify_all();
  }

  // Call the following with the tree's lock held.
  bool has_come() const {
    for (const Turn* turn = this; turn->parent; turn = turn->parent.get()) {
      if (turn->parent->children.front() != turn) return false;
    }
    return true;
  }
  bool is_below(const Turn& ancestor) const {
    const Turn* turn = this;
    while (turn != &ancestor && turn->parent) turn = turn->parent.get();
    return turn == &ancestor;
  }
  int depth() const {
    int depth = 0;
    for (const Turn* turn = this; turn->parent; turn = turn->parent.get()) ++depth;
    return depth;
  }
};

namespace {

constexpr std::chrono::hours kLongest{24 * 365};  // what a condition variable can wait for

// The turn of the callback that this thread runs.
thread_local CallbackOrder::TurnPointer current;

}  // namespace

CallbackOrder::CallbackOrder(std::string name) : tree_(std::make_shared<Tree>()) {
  tree_->name = std::move(name);
  tree_->root = std::make_shared<Turn>();
}

CallbackOrder::TurnPointer CallbackOrder::add() {
  auto turn = std::make_shared<Turn>();
  turn->tree = current ? current->tree : tree_;
  const std::lock_guard lock(turn->tree->mutex);
  turn->parent = current ? current : tree_->root;
  turn->place = turn->parent->children.insert(turn->parent->children.end(), turn.get());
  return turn;
}

CallbackOrder::Running::Running(TurnPointer turn) : outer_(std::exchange(current, std::move(turn))) {}
CallbackOrder::Running::~Running() { current = std::move(outer_); }

bool CallbackOrder::inside_callback() { return current != nullptr; }

std::optional<std::string> CallbackOrder::wait_for_turn(std::chrono::milliseconds limit) {
  if (!current) return "";
  Tree& tree = *current->tree;
  std::unique_lock lock(tree.mutex);
  const auto longest = std::min<std::chrono::milliseconds>(limit, kLongest);
  if (!tree.changed.wait_for(lock, longest, [] { return current->has_come(); })) return std::nullopt;
  return tree.name + "/" + std::to_string(current->depth());
}

void CallbackOrder::let_pass(const std::weak_ptr<Turn>& other) {
  if (!current) return;
  Tree& tree = *current->tree;
  const auto comes_later = [&](const TurnPointer& turn) {
    return turn && turn->tree == current->tree && !turn->is_below(*current) && !turn->has_come();
  };
  TurnPointer turn = other.lock();  // references are dropped without the lock, which the end of a turn takes
  {
    const std::lock_guard lock(tree.mutex);
    if (!comes_later(turn)) return;
  }
  turn = nullptr;  // it may come earlier
  (void)wait_for_turn(kLongest);
  turn = other.lock();
  TurnPointer parent = current;
  const std::lock_guard lock(tree.mutex);
  if (!comes_later(turn)) return;
  current->children.splice(current->children.end(), turn->parent->children, turn->place);
  turn->parent.swap(parent);
  tree.changed.notify_all();
}

}  // namespace qccl::torch_binding
