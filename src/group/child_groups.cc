// The groups that are made of a group's ranks: Communicator::subgroup(), split() and dup().
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/digest/digest.h"
#include "group/communicator_state.h"

namespace qccl::internal {
namespace {

using comm::Context;
using comm::GroupIdentity;
using GroupState = std::shared_ptr<CommunicatorState>;

constexpr const char* kNewGroup = "new group";

// `ranks`: world ranks.
GroupState make_child(const std::shared_ptr<Context>& context, GroupIdentity child, const GroupIdentity& parent,
                      const std::stop_token& stop = {}) {
  child.rank = static_cast<int>(std::ranges::find(child.ranks, context->rank()) - child.ranks.begin());
  return CommunicatorState::open(context, std::move(child), {.parent = parent.id, .stop = stop}).take_or_throw();
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

// Here and below, memory is taken before the count changes: from then on the other members wait for this rank.
GroupState CommunicatorState::subgroup(const std::vector<int>& members, const std::string& name,
                                       const std::stop_token& stop) {
  const auto context = this->context();
  refuse_recording(kNewGroup);
  check_members(group_, members, name);
  GroupIdentity child{.name = name};
  for (const int member : members) child.ranks.push_back(group_.ranks[static_cast<std::size_t>(member)]);
  child.id = child_ids_.next_subgroup(members, name);
  return make_child(context, std::move(child), group_, stop);
}

GroupState CommunicatorState::split(int colour, int key) {
  struct Choice {
    int colour;
    int key;
  };
  const auto context = this->context();
  refuse_recording(kNewGroup);
  const Choice choice{colour, key};
  std::vector<Choice> choices(group_.ranks.size());
  std::vector<std::size_t> members;
  members.reserve(choices.size());
  GroupIdentity child{.name = fmt::format("{}/{}", group_.name, colour)};
  child.ranks.reserve(choices.size());
  run(CollectiveCall{Collective::all_gather, &choice, choices.data(), sizeof(Choice), DataType::uint8, CallOptions{}});
  child.id = digest(static_cast<std::uint64_t>(colour), child_ids_.next_child());
  if (colour < 0) return nullptr;
  for (std::size_t member = 0; member < choices.size(); ++member) {
    if (choices[member].colour == colour) members.push_back(member);
  }
  std::ranges::stable_sort(members, {}, [&](std::size_t member) { return choices[member].key; });
  for (const std::size_t member : members) child.ranks.push_back(group_.ranks[member]);
  return make_child(context, std::move(child), group_);
}

GroupState CommunicatorState::dup() {
  const auto context = this->context();
  refuse_recording(kNewGroup);
  GroupIdentity child{.name = group_.name + "/dup", .ranks = group_.ranks};
  child.id = child_ids_.next_child();
  const auto twin = make_child(context, std::move(child), group_);
  copy_settings(*this, *twin);
  return twin;
}

void copy_settings(CommunicatorState& from, CommunicatorState& to) {
  const auto [compression, timeout] = from.with_builder(
      [](const comm::CallBuilder& builder) { return std::pair(builder.compression(), builder.timeout()); });
  to.with_builder([&](comm::CallBuilder& builder) {
    builder.set_compression(compression);
    builder.set_timeout(timeout);
  });
}

}  // namespace qccl::internal
