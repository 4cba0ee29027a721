#include "engine/act/group_lifecycle.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace qccl::engine {

Status GroupLifecycle::open(std::uint64_t id, std::string name, std::vector<int> ranks,
                            std::optional<std::uint64_t> parent) {
  if (groups_.find(id) != nullptr) {
    return Failure(ErrorKind::invalid_argument, fmt::format("a group named '{}' exists already", name));
  }
  if (failures_.failure_of_all() != nullptr) return Failure(*failures_.failure_of_all());
  auto created = std::make_unique<Group>();
  created->id = id;
  created->name = std::move(name);
  created->members_of.resize(static_cast<std::size_t>(options_.world));
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    created->members_of[static_cast<std::size_t>(ranks[member])] = GroupRank(member);
  }
  for (const int rank : ranks) {
    created->hosts.push_back(options_.hosts.empty() ? 0 : options_.hosts[static_cast<std::size_t>(rank)]);
  }
  created->ranks = std::move(ranks);
  created->rank = created->group_rank(options_.rank);
  created->parent = parent;
  if (const auto failure = failures_.failure_of_parent(*created)) return Failure(*failure);
  created->totals = &ledger_.open(created->name, created->world());
  quiet_waiters_.reserve(groups_.size() + 1);
  Group& opened = groups_.add(std::move(created));
  // What arrived before the group existed here belongs to it now.
  for (Frame& frame : groups_.take_orphans(id)) dispatcher_.on_group_frame(opened, std::move(frame));
  return {};
}

void GroupLifecycle::end_opening(std::uint64_t id) {
  if (Group* const opened = groups_.find(id)) opened->parent.reset();
}

void GroupLifecycle::close(std::uint64_t id) {
  Group* closing = groups_.find(id);
  if (closing == nullptr) return;
  shrinker_.close(*closing);
  failures_.close(*closing);
  if (ExchangeCells* board = transport_.board()) board->close(id);
  mismatches_.forget(id);
  operations_.forget(*closing);
  groups_.close(id);
}

void GroupLifecycle::refuse(std::uint64_t id, std::vector<int>&& ranks) {
  if (groups_.find(id) != nullptr) {
    run_out_of_memory(id);
    return close(id);
  }
  groups_.close(id);
  failures_.refuse(id, std::move(ranks));
}

void GroupLifecycle::fail(std::uint64_t id, ErrorInfo failure) {
  Group* target = groups_.find(id);
  if (target == nullptr) return;
  failure.rank = options_.rank.value();
  failures_.fail(*target, std::move(failure), true);
  failures_.sweep();
  control_.send();
}

void GroupLifecycle::run_out_of_memory(std::uint64_t id) {
  Group* const target = groups_.find(id);
  if (target == nullptr) return;
  failures_.run_out(*target, nullptr);
  failures_.sweep();
}

bool GroupLifecycle::prepare_board(std::uint64_t id) {
  ExchangeCells* board = transport_.board();
  return board != nullptr && groups_.find(id) != nullptr && board->open(id);
}

void GroupLifecycle::use_board(std::uint64_t id, bool use) {
  Group* target = groups_.find(id);
  if (target == nullptr) return;
  target->has_board = use;
  if (ExchangeCells* board = transport_.board(); board != nullptr && !use) board->close(id);
}

bool GroupLifecycle::has_board(std::uint64_t id) const {
  const Group* const found = groups_.find(id);
  return found != nullptr && found->has_board;
}

void GroupLifecycle::notify_when_failed(std::uint64_t id, std::shared_ptr<internal::WorkState> work) {
  Group* const target = groups_.find(id);
  if (target != nullptr && target->failure == nullptr) return target->watchers.push_back(std::move(work));
  ended_.push(std::move(work), target == nullptr ? nullptr : target->failure);
}

void GroupLifecycle::notify_when_quiet(std::uint64_t id, std::shared_ptr<internal::WorkState> work) {
  quiet_waiters_.emplace_back(id, std::move(work));
  notify_quiet();
}

void GroupLifecycle::notify_quiet() {
  std::erase_if(quiet_waiters_, [this](const auto& waiter) {
    const bool busy = std::any_of(operations_.begin(), operations_.end(),
                                  [&](const auto& operation) { return operation->group().id == waiter.first; });
    if (!busy) ended_.push(waiter.second, nullptr);
    return !busy;
  });
}

}  // namespace qccl::engine
