#include "completion_order.h"

#include <deque>
#include <mutex>
#include <utility>

namespace qccl::torch_binding {

struct CompletionOrder::Tree {
  std::string name;
  std::mutex mutex;  // of all places; not held while completing one
  PlacePointer root;
};

struct CompletionOrder::Place : std::enable_shared_from_this<Place> {
  std::shared_ptr<Tree> tree;  // null in the root
  PlacePointer parent;         // null in the root
  std::deque<PlacePointer> children;
  std::function<void()> complete;
  int depth = 0;
  bool ended = false;
  bool started = false;
  bool returned = false;
};

namespace {

// The place whose callbacks this thread runs.
thread_local CompletionOrder::PlacePointer current_place;

}  // namespace

CompletionOrder::CompletionOrder(std::string name) : tree_(std::make_shared<Tree>()) {
  tree_->name = std::move(name);
  tree_->root = std::make_shared<Place>();
}

CompletionOrder::PlacePointer CompletionOrder::take_place(std::function<void()> complete) {
  auto place = std::make_shared<Place>();
  place->tree = current_place ? current_place->tree : tree_;
  place->parent = current_place ? current_place : tree_->root;
  place->depth = place->parent->depth + 1;
  place->complete = std::move(complete);
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

void CompletionOrder::complete_inside_callback(const PlacePointer& place) {
  if (!current_place) return;
  {
    const std::lock_guard lock(place->tree->mutex);
    if (std::exchange(place->started, true)) return;
  }
  run(*place);
  {
    const std::lock_guard lock(place->tree->mutex);
    place->returned = true;
  }
  take_turns(*place->tree, place);
}

// Completes children of `level` from the first on. After a place's last child, the place is done
// and its siblings follow.
void CompletionOrder::take_turns(Tree& tree, PlacePointer level) {
  std::unique_lock lock(tree.mutex);
  while (true) {
    if (level->children.empty()) {
      if (!level->returned) return;  // the root never does
      const PlacePointer done = std::exchange(level, level->parent);
      std::erase(level->children, done);
      continue;
    }
    const PlacePointer first = level->children.front();
    if (!first->ended || first->started) return;
    first->started = true;
    lock.unlock();
    run(*first);
    lock.lock();
    first->returned = true;
    level = first;
  }
}

void CompletionOrder::run(Place& place) {
  const auto outer = std::exchange(current_place, place.shared_from_this());
  std::exchange(place.complete, nullptr)();
  current_place = outer;
}

bool CompletionOrder::inside_callback() { return current_place != nullptr; }

std::string CompletionOrder::current_sequence() {
  if (!current_place) return "";
  return current_place->tree->name + "/" + std::to_string(current_place->depth);
}

}  // namespace qccl::torch_binding
