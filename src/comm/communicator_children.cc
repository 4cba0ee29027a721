// The part of CommunicatorState that makes groups out of this one's ranks.
//
// No identity is ever used twice, so that late frames of a closed group belong to nobody: it is a
// digest of the parent's and of a count that its members agree on without asking. What takes memory comes before the
// count: from there on the others wait for this rank.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/digest/digest.h"
#include "comm/communicator_state.h"

namespace qccl::internal {
namespace {

constexpr const char* kNewGroup = "new group";

}  // namespace

std::vector<int> CommunicatorState::world_ranks(const std::vector<int>& members) const {
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(ranks_[static_cast<std::size_t>(member)]);
  return ranks;
}

void CommunicatorState::refuse_recording(comm::Context& context, const char* what) const {
  if (context.recorder().work() == nullptr) return;
  throw Error({.kind = ErrorKind::misuse,
               .message = fmt::format("QCCL rank {}, group '{}': no {} between group_start() and group_end()",
                                      context.rank(), name_, what),
               .rank = context.rank()});
}

std::shared_ptr<CommunicatorState> CommunicatorState::subgroup(const std::vector<int>& members,
                                                               const std::string& name) {
  const auto context = this->context();
  refuse_recording(*context, kNewGroup);
  std::uint64_t list = digest(name, id_);
  for (const int member : members) {
    const bool exists = member >= 0 && member < size();
    if (!exists || std::count(members.begin(), members.end(), member) != 1) {
      throw wrong_argument(
          *context, "subgroup",
          fmt::format("'{}': rank {} is {}", name, member, exists ? "in the list twice" : "no rank of this group"));
    }
    list = digest(static_cast<std::uint64_t>(member), list);
  }
  if (std::find(members.begin(), members.end(), rank()) == members.end()) {
    throw wrong_argument(*context, "subgroup", fmt::format("'{}' does not contain the calling rank {}", name, rank()));
  }
  std::vector<int> ranks = world_ranks(members);
  std::string own_name = name;
  std::uint64_t nth = 0;
  {
    const std::lock_guard lock(mutex_);
    nth = ++subgroups_[list];
  }
  return open(context, digest(nth, list), std::move(own_name), std::move(ranks), id_).take_or_throw();
}

// In step on all ranks, as split() and dup() are collective.
std::uint64_t CommunicatorState::next_child_id() {
  const std::lock_guard lock(mutex_);
  return digest(++children_, digest("child", id_));
}

std::shared_ptr<CommunicatorState> CommunicatorState::split(int colour, int key) {
  struct Choice {
    int colour;
    int key;
  };
  const auto context = this->context();
  refuse_recording(*context, kNewGroup);
  const Choice own{colour, key};
  std::vector<Choice> choices(static_cast<std::size_t>(size()));
  std::vector<int> members;
  members.reserve(choices.size());
  std::string name = fmt::format("{}/{}", name_, colour);
  run({Collective::all_gather, &own, choices.data(), sizeof(Choice), DataType::uint8, CallOptions{}});
  const std::uint64_t id = next_child_id();
  if (colour < 0) return nullptr;
  const auto choice_of = [&](int member) { return choices[static_cast<std::size_t>(member)]; };
  for (int member = 0; member < size(); ++member) {
    if (choice_of(member).colour == colour) members.push_back(member);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return choice_of(a).key < choice_of(b).key; });
  for (int& member : members) member = ranks_[static_cast<std::size_t>(member)];
  const auto number = static_cast<std::uint64_t>(colour);
  return open(context, digest(number, id), std::move(name), std::move(members), id_).take_or_throw();
}

std::shared_ptr<CommunicatorState> CommunicatorState::dup() {
  const auto context = this->context();
  refuse_recording(*context, kNewGroup);
  std::vector<int> everyone = ranks_;
  std::string name = name_ + "/dup";
  const auto twin = open(context, next_child_id(), std::move(name), std::move(everyone), id_).take_or_throw();
  const std::scoped_lock lock(mutex_, twin->mutex_);
  twin->defaults_.compression = defaults_.compression;
  twin->defaults_to_automatic_ = defaults_to_automatic_.load();
  twin->timeout_ = timeout_;
  return twin;
}

}  // namespace qccl::internal
