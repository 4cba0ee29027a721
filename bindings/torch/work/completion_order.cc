#include "work/completion_order.h"

#include <deque>
#include <mutex>
#include <utility>

namespace qccl::torch_binding {

struct CompletionOrder::Tree {
  std::string name;
  std::mutex mutex;  // guards all places; not held while completing one
  PlacePointer root;
};

struct CompletionOrder::Place : std::enable_shared_from_this<Place> {
  std::shared_ptr<Tree> tree;  // null in the root
  PlacePointer parent;         // null in the root
  std::deque<PlacePointer> children;
  std::function<void()> complete;
  std::function<void()> announce;
  int depth = 0;
  bool ended = false;
  bool started = false;
  bool returned = false;
};

namespace {

// The place whose callback this thread runs.
thread_local CompletionOrder::PlacePointer current_place;

}  // namespace

CompletionOrder::CompletionOrder(std::string name) : tree_(std::make_shared<Tree>()) {
  tree_->name = std::move(name);
  tree_->root = std::make_shared<Place>();
}

CompletionOrder::PlacePointer CompletionOrder::take_place(std::function<void()> complete,
                                                          std::function<void()> announce) {
  auto place = std::make_shared<Place>();
  place->tree = current_place ? current_place->tree : tree_;
  place->parent = current_place ? current_place : tree_->root;
  place->depth = place->parent->depth + 1;
  place->complete = std::move(complete);
  place->announce = std::move(announce);
  const std::lock_guard lock(place->tree->mutex);
  place->parent->children.push_back(place);
  return place;
}

void CompletionOrder::ended(const PlacePointer& place) {
  {
    const std::lock_guard lock(place->tree->mutex);
    place->ended = true;
  }
  take_turns(*place->tree, place->parent);
}

bool CompletionOrder::complete_at_once(const PlacePointer& place) {
  const auto& siblings = place->parent->children;
  {
    const std::lock_guard lock(place->tree->mutex);
    if (siblings.front() != place) return true;
    place->started = true;
  }
  run(*place);
  const std::lock_guard lock(place->tree->mutex);
  return !siblings.empty() && siblings.front()->ended && !siblings.front()->started;
}

void CompletionOrder::complete_inside_callback(const PlacePointer& place) {
  if (!current_place) return;
  {
    const std::lock_guard lock(place->tree->mutex);
    if (std::exchange(place->started, true)) return;
  }
  take_turns(*place->tree, run(*place));
}

// Completes the children of `level` in order, and then the places that follow `level`.
void CompletionOrder::take_turns(Tree& tree, PlacePointer level) {
  while (true) {
    PlacePointer first;
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

// Returns the level on which the order continues: the place itself while it has children, else the first ancestor that
// is still running or has children left.
CompletionOrder::PlacePointer CompletionOrder::run(Place& place) {
  // They may hold objects that need the interpreter's lock to be freed, so they are freed without the tree's lock.
  const auto complete = std::exchange(place.complete, nullptr);
  const auto announce = std::exchange(place.announce, nullptr);
  PlacePointer level = place.shared_from_this();
  const auto outer = std::exchange(current_place, level);
  complete();
  current_place = outer;
  {
    const std::lock_guard lock(place.tree->mutex);
    place.returned = true;
    while (level->returned && level->children.empty()) {  // the root never returns
      const PlacePointer done = std::exchange(level, level->parent);
      std::erase(level->children, done);
    }
  }
  if (announce) announce();
  return level;
}

bool CompletionOrder::inside_callback() { return current_place != nullptr; }

std::string CompletionOrder::current_sequence() {
  if (!current_place) return "";
  return current_place->tree->name + "/" + std::to_string(current_place->depth);
}

}  // namespace qccl::torch_binding
