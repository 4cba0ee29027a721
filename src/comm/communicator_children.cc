// The part of CommunicatorState that makes groups out of this one's ranks.
//
// No identity is ever used twice, so that late frames of a closed group belong to nobody: it is a
// digest of the parent's and of a count that its members agree on without asking.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/digest.h"
#include "comm/communicator_state.h"

namespace qccl::internal {
namespace {

constexpr const char* kNewGroup = "new group";

}  // namespace

std::shared_ptr<CommunicatorState> CommunicatorState::open_child(std::uint64_t id, std::string name,
                                                                 const std::vector<int>& members) {
  std::vector<int> world_ranks;
  for (const int member : members) world_ranks.push_back(ranks_[static_cast<std::size_t>(member)]);
  const auto context = this->context();
  {
    const std::lock_guard lock(mutex_);
    opening_.push_back(id);
  }
  auto child = open(context, id, std::move(name), std::move(world_ranks));
  {
    const std::lock_guard lock(mutex_);
    std::erase(opening_, id);
  }
  return std::move(child).take_or_throw();
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
  std::uint64_t nth = 0;
  {
    const std::lock_guard lock(mutex_);
    nth = ++subgroups_[list];
  }
  return open_child(digest(nth, list), name, members);
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
  run({Collective::all_gather, &own, choices.data(), sizeof(Choice), DataType::uint8, CallOptions{}});
  const std::uint64_t id = next_child_id();
  if (colour < 0) return nullptr;
  const auto choice_of = [&](int member) { return choices[static_cast<std::size_t>(member)]; };
  std::vector<int> members;
  for (int member = 0; member < size(); ++member) {
    if (choice_of(member).colour == colour) members.push_back(member);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return choice_of(a).key < choice_of(b).key; });
  const auto number = static_cast<std::uint64_t>(colour);
  return open_child(digest(number, id), fmt::format("{}/{}", name_, colour), members);
}

std::shared_ptr<CommunicatorState> CommunicatorState::dup() {
  refuse_recording(*context(), kNewGroup);
  std::vector<int> everyone(ranks_.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  auto twin = open_child(next_child_id(), name_ + "/dup", everyone);
  const std::scoped_lock lock(mutex_, twin->mutex_);
  twin->defaults_.compression = defaults_.compression;
  twin->timeout_ = timeout_;
  return twin;
}

}  // namespace qccl::internal
