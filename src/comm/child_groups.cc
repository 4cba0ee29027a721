#include "comm/child_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/digest/digest.h"
#include "comm/communicator_state.h"

namespace qccl::comm {
namespace {

using internal::CommunicatorState;

constexpr const char* kNewGroup = "new group";

// `ranks`: world ranks.
GroupState open(const std::shared_ptr<Context>& context, GroupIdentity child, const GroupIdentity& parent) {
  child.rank = static_cast<int>(std::ranges::find(child.ranks, context->rank()) - child.ranks.begin());
  return CommunicatorState::open(context, std::move(child), parent.id).take_or_throw();
}

void check_members(const GroupIdentity& parent, const std::vector<int>& members, const std::string& name) {
  for (const int member : members) {
    const bool exists = member >= 0 && member < parent.size();
    if (exists && std::ranges::count(members, member) == 1) continue;
    throw parent.invalid_argument("subgroup", fmt::format("'{}': rank {} is {}", name, member,
                                                          exists ? "in the list twice" : "not in this group"));
  }
  if (std::ranges::find(members, parent.rank) == members.end()) {
    throw parent.invalid_argument("subgroup",
                                  fmt::format("'{}' does not contain the calling rank {}", name, parent.rank));
  }
}

}  // namespace

std::uint64_t ChildIds::next_subgroup(std::span<const int> members, const std::string& name) {
  std::uint64_t list = digest(name, parent_);
  for (const int member : members) list = digest(static_cast<std::uint64_t>(member), list);
  const std::lock_guard lock(mutex_);
  return digest(++subgroups_[list], list);
}

std::uint64_t ChildIds::next_child() {
  const std::lock_guard lock(mutex_);
  return digest(++children_, digest("child", parent_));
}

// Here and below, memory is taken before the count changes: from then on the other members wait for this rank.
GroupState subgroup(CommunicatorState& parent, const std::vector<int>& members, const std::string& name) {
  const auto context = parent.context();
  const GroupIdentity& own = parent.group();
  parent.refuse_recording(kNewGroup);
  check_members(own, members, name);
  GroupIdentity child{.name = name};
  for (const int member : members) child.ranks.push_back(own.ranks[static_cast<std::size_t>(member)]);
  child.id = parent.child_ids().next_subgroup(members, name);
  return open(context, std::move(child), own);
}

GroupState split(CommunicatorState& parent, int colour, int key) {
  struct Choice {
    int colour;
    int key;
  };
  const auto context = parent.context();
  const GroupIdentity& own = parent.group();
  parent.refuse_recording(kNewGroup);
  const Choice choice{colour, key};
  std::vector<Choice> choices(own.ranks.size());
  std::vector<std::size_t> members;
  members.reserve(choices.size());
  GroupIdentity child{.name = fmt::format("{}/{}", own.name, colour)};
  child.ranks.reserve(choices.size());
  parent.run(
      CollectiveCall{Collective::all_gather, &choice, choices.data(), sizeof(Choice), DataType::uint8, CallOptions{}});
  child.id = digest(static_cast<std::uint64_t>(colour), parent.child_ids().next_child());
  if (colour < 0) return nullptr;
  for (std::size_t member = 0; member < choices.size(); ++member) {
    if (choices[member].colour == colour) members.push_back(member);
  }
  std::ranges::stable_sort(members, {}, [&](std::size_t member) { return choices[member].key; });
  for (const std::size_t member : members) child.ranks.push_back(own.ranks[member]);
  return open(context, std::move(child), own);
}

GroupState dup(CommunicatorState& parent) {
  const auto context = parent.context();
  const GroupIdentity& own = parent.group();
  parent.refuse_recording(kNewGroup);
  GroupIdentity child{.name = own.name + "/dup", .ranks = own.ranks};
  child.id = parent.child_ids().next_child();
  const auto twin = open(context, std::move(child), own);
  const auto [compression, timeout] = parent.with_builder(
      [](const CallBuilder& builder) { return std::pair(builder.compression(), builder.timeout()); });
  twin->with_builder([&](CallBuilder& builder) {
    builder.set_compression(compression);
    builder.set_timeout(timeout);
  });
  return twin;
}

}  // namespace qccl::comm
