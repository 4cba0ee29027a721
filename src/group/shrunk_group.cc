// Communicator::shrink(): the members that live agree on themselves (engine/shrink/agreement.h), then open a group
// that is independent of the failed one.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/digest/digest.h"
#include "engine/progress/progress_driver.h"
#include "group/communicator_state.h"

namespace qccl::internal {
namespace {

using comm::Context;
using comm::GroupIdentity;

engine::ShrinkTerms terms_of(const GroupIdentity& group, const ShrinkOptions& options) {
  engine::ShrinkTerms terms{engine::MemberSet(group.ranks.size(), 0), options.quorum == Quorum::any};
  for (const int member : options.without) {
    const auto refuse = [&](const char* why) {
      throw group.invalid_argument("shrink", fmt::format("ShrinkOptions::without: rank {} is {}", member, why));
    };
    if (member < 0 || member >= group.size()) refuse("not in this group");
    if (member == group.rank) refuse("the calling rank");
    if (std::exchange(terms.without[static_cast<std::size_t>(member)], 1) != 0) refuse("in the list twice");
  }
  return terms;
}

Nanoseconds positive(const GroupIdentity& group, const char* name, std::chrono::milliseconds time) {
  if (time.count() > 0) return saturating_nanoseconds(time);
  throw group.invalid_argument("shrink", fmt::format("ShrinkOptions::{}: {} ms is not positive", name, time.count()));
}

Nanoseconds timeout_of(CommunicatorState& state, const ShrinkOptions& options) {
  if (options.timeout) return positive(state.group(), "timeout", *options.timeout);
  return state.with_builder([](const comm::CallBuilder& builder) { return builder.timeout(); });
}

// Blocks until the members have agreed; throws the failure.
std::vector<GroupRank> agree(Context& context, std::uint64_t group, engine::ShrinkCall call) {
  const auto work = call.work = make_work();
  const auto then = call.then = std::make_shared<std::vector<GroupRank>>();
  context.driver().with_engine([&](engine::Engine& engine) { engine.shrinker().begin(group, std::move(call)); });
  context.driver().wait(*work, kForever);
  if (work->failure()) throw Error(*work->failure());
  return std::move(*then);
}

// A group has one successor at most: its identity is used once.
GroupIdentity successor(const GroupIdentity& group, const std::vector<GroupRank>& members) {
  GroupIdentity next{.id = digest("shrunk", group.id), .name = group.name + "/shrunk"};
  for (const GroupRank member : members) {
    next.id = digest(static_cast<std::uint64_t>(member.value()), next.id);
    if (member.value() == group.rank) next.rank = next.size();
    next.ranks.push_back(group.ranks[member.index()]);
  }
  return next;
}

}  // namespace

std::vector<GroupRank> agree_on_members(CommunicatorState& state, const ShrinkOptions& options) {
  const auto context = state.context();
  const GroupIdentity& group = state.group();
  const Nanoseconds patience =
      options.patience ? positive(group, "patience", *options.patience) : context->settings().options.peer_timeout;
  return agree(*context, group.id,
               {.terms = terms_of(group, options), .patience = patience, .timeout = timeout_of(state, options)});
}

std::shared_ptr<CommunicatorState> shrink_group(CommunicatorState& state, const ShrinkOptions& options) {
  const auto context = state.context();
  state.refuse_recording("shrink()");
  const TimePoint deadline = saturating_add(context->clock().now(), timeout_of(state, options));
  const std::vector<GroupRank> members = agree_on_members(state, options);
  // A member that is lost from now on leaves a group that has failed, as it would right after this call.
  const Nanoseconds left = std::max<Nanoseconds>(deadline - context->clock().now(), Milliseconds(1));
  auto next =
      CommunicatorState::open(context, successor(state.group(), members), {.timeout = left, .may_be_lost = true})
          .take_or_throw();
  copy_settings(state, *next);
  return next;
}

}  // namespace qccl::internal
