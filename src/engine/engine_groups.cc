// The part of Engine that opens and closes groups.
#include <fmt/format.h>

#include <algorithm>

#include "engine/collective/cell_operation.h"
#include "engine/engine.h"
#include "engine/message/mailbox.h"

namespace qccl::engine {

Group::Group() = default;
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

internal::SharedFailure Engine::failure_of_parent(const Group& opening) {
  const Group* const parent = opening.parent ? group(*opening.parent) : nullptr;
  if (parent == nullptr || parent->failure == nullptr || parent->failure == closed_) return nullptr;
  const ErrorInfo& failure = *parent->failure;
  const bool lost_outsider = failure.kind == ErrorKind::peer_lost && failure.peer >= 0 &&
                             opening.index_of[static_cast<std::size_t>(failure.peer)] < 0;
  return lost_outsider ? nullptr : parent->failure;
}

Status Engine::open_group(std::uint64_t id, std::string name, std::vector<int> ranks,
                          std::optional<std::uint64_t> parent) {
  if (groups_.find(id) != nullptr) {
    return Failure(ErrorKind::invalid_argument, fmt::format("a group named '{}' exists already", name));
  }
  if (failure_ != nullptr) return Failure(*failure_);
  auto created = std::make_unique<Group>();
  created->id = id;
  created->name = std::move(name);
  created->index_of.assign(static_cast<std::size_t>(options_.world), -1);
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    created->index_of[static_cast<std::size_t>(ranks[member])] = static_cast<int>(member);
  }
  for (const int rank : ranks) {
    created->hosts.push_back(options_.hosts.empty() ? 0 : options_.hosts[static_cast<std::size_t>(rank)]);
  }
  created->ranks = std::move(ranks);
  created->rank = created->index_of[static_cast<std::size_t>(options_.rank)];
  created->parent = parent;
  if (const auto failure = failure_of_parent(*created)) return Failure(*failure);
  quiet_waiters_.reserve(groups_.size() + 1);
  Group& opened = groups_.add(std::move(created));
  // What arrived before the group existed here belongs to it now.
  for (const StoredFrame& stored : groups_.take_orphans(id)) on_group_frame(opened, stored.header, stored.frame);
  return {};
}

void Engine::end_opening(std::uint64_t id) {
  if (Group* const opened = group(id)) opened->parent.reset();
}

void Engine::close_group(std::uint64_t id) {
  Group* closing = group(id);
  if (closing == nullptr) return;
  if (closing->failure == nullptr) closing->failure = closed_;
  sweep_needed_ = true;
  sweep_failed_groups();
  if (ExchangeCells* board = transport_.board()) board->close(id);
  std::erase_if(mismatches_, [id](const Mismatch& mismatch) { return mismatch.group == id; });
  retired_.forget(*closing);
  groups_.close(id);
}

bool Engine::prepare_board(std::uint64_t id) {
  ExchangeCells* board = transport_.board();
  return board != nullptr && group(id) != nullptr && board->open(id);
}

void Engine::use_board(std::uint64_t id, bool use) {
  Group* target = group(id);
  if (target == nullptr) return;
  target->has_board = use;
  if (ExchangeCells* board = transport_.board(); board != nullptr && !use) board->close(id);
}

bool Engine::has_board(std::uint64_t id) const {
  const Group* const found = groups_.find(id);
  return found != nullptr && found->has_board;
}

void Engine::notify_when_quiet(std::uint64_t id, std::shared_ptr<internal::WorkState> work) {
  quiet_waiters_.emplace_back(id, std::move(work));
  notify_quiet_groups();
}

void Engine::notify_quiet_groups() {
  std::erase_if(quiet_waiters_, [this](const auto& waiter) {
    const bool busy = std::any_of(operations_.begin(), operations_.end(),
                                  [&](const auto& operation) { return operation->group().id == waiter.first; });
    if (!busy) ended_.push(waiter.second, nullptr);
    return !busy;
  });
}

}  // namespace qccl::engine
