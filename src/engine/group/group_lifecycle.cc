#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/collective/cell_operation.h"
#include "engine/message/mailbox.h"

namespace qccl::engine {

Group::~Group() = default;

std::string Group::rank_list(const std::vector<GroupRank>& members) const {
  std::vector<WorldRank> listed;
  for (const GroupRank member : members) listed.push_back(world_rank(member));
  return fmt::format("rank{} {}", listed.size() == 1 ? "" : "s", fmt::join(listed, ", "));
}

Status GroupLifecycle::open(std::uint64_t id, std::string name, std::vector<int> ranks,
                            std::optional<std::uint64_t> parent) {
  if (parts_.groups.find(id) != nullptr) {
    return Failure(ErrorKind::invalid_argument, fmt::format("a group named '{}' exists already", name));
  }
  if (failures_.failure_of_all() != nullptr) return Failure(*failures_.failure_of_all());
  auto created = std::make_unique<Group>();
  created->id = id;
  created->name = std::move(name);
  created->members_of.resize(static_cast<std::size_t>(parts_.options.world));
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    created->members_of[static_cast<std::size_t>(ranks[member])] = GroupRank(member);
  }
  for (const int rank : ranks) {
    created->hosts.push_back(parts_.options.hosts.empty() ? 0 : parts_.options.hosts[static_cast<std::size_t>(rank)]);
  }
  created->ranks = std::move(ranks);
  created->rank = created->group_rank(parts_.options.rank);
  created->parent = parent;
  if (const auto failure = failures_.failure_of_parent(*created)) return Failure(*failure);
  quiet_waiters_.reserve(parts_.groups.size() + 1);
  Group& opened = parts_.groups.add(std::move(created));
  // What arrived before the group existed here belongs to it now.
  for (const StoredFrame& stored : parts_.groups.take_orphans(id))
    dispatcher_.on_group_frame(opened, stored.header, stored.frame);
  return {};
}

void GroupLifecycle::end_opening(std::uint64_t id) {
  if (Group* const opened = parts_.groups.find(id)) opened->parent.reset();
}

void GroupLifecycle::close(std::uint64_t id) {
  Group* closing = parts_.groups.find(id);
  if (closing == nullptr) return;
  shrinker_.close(*closing);
  failures_.close(*closing);
  if (ExchangeCells* board = parts_.transport.board()) board->close(id);
  mismatches_.forget(id);
  parts_.operations.forget(*closing);
  parts_.groups.close(id);
}

void GroupLifecycle::refuse(std::uint64_t id, std::vector<int>&& ranks) {
  if (parts_.groups.find(id) != nullptr) {
    run_out_of_memory(id);
    return close(id);
  }
  parts_.groups.close(id);
  failures_.refuse(id, std::move(ranks));
}

void GroupLifecycle::fail(std::uint64_t id, ErrorInfo failure) {
  Group* target = parts_.groups.find(id);
  if (target == nullptr) return;
  failure.rank = parts_.options.rank.value();
  failures_.fail(*target, std::move(failure), true);
  failures_.sweep();
  parts_.control.send();
}

void GroupLifecycle::run_out_of_memory(std::uint64_t id) {
  Group* const target = parts_.groups.find(id);
  if (target == nullptr) return;
  failures_.run_out(*target, nullptr);
  failures_.sweep();
}

bool GroupLifecycle::prepare_board(std::uint64_t id) {
  ExchangeCells* board = parts_.transport.board();
  return board != nullptr && parts_.groups.find(id) != nullptr && board->open(id);
}

void GroupLifecycle::use_board(std::uint64_t id, bool use) {
  Group* target = parts_.groups.find(id);
  if (target == nullptr) return;
  target->has_board = use;
  if (ExchangeCells* board = parts_.transport.board(); board != nullptr && !use) board->close(id);
}

bool GroupLifecycle::has_board(std::uint64_t id) const {
  const Group* const found = parts_.groups.find(id);
  return found != nullptr && found->has_board;
}

void GroupLifecycle::notify_when_failed(std::uint64_t id, std::shared_ptr<internal::WorkState> work) {
  Group* const target = parts_.groups.find(id);
  if (target != nullptr && target->failure == nullptr) return target->watchers.push_back(std::move(work));
  parts_.ended.push(std::move(work), target == nullptr ? nullptr : target->failure);
}

void GroupLifecycle::notify_when_quiet(std::uint64_t id, std::shared_ptr<internal::WorkState> work) {
  quiet_waiters_.emplace_back(id, std::move(work));
  notify_quiet();
}

void GroupLifecycle::notify_quiet() {
  std::erase_if(quiet_waiters_, [this](const auto& waiter) {
    const bool busy = std::any_of(parts_.operations.begin(), parts_.operations.end(),
                                  [&](const auto& operation) { return operation->group().id == waiter.first; });
    if (!busy) parts_.ended.push(waiter.second, nullptr);
    return !busy;
  });
}

}  // namespace qccl::engine
