// The part of Engine that deals with memory that the system refuses. Nothing here needs any: words that say where it
// happened, and telling the peers, wait until there is some.
#include <fmt/format.h>

#include <new>

#include "engine/engine.h"
#include "engine/message/mailbox.h"

namespace qccl::engine {

// The group can't go on: what the operation did, or a frame, was lost half way.
void Engine::run_out(Group& group, const Operation* operation) {
  frame_sender_.abandon();
  sweep_needed_ = true;
  if (group.failure) return;
  group.failure = memory_failure(group, operation);
  group.is_untold = true;
}

internal::SharedFailure Engine::memory_failure(const Group& group, const Operation* operation) const {
  try {
    ErrorInfo info = group_error(group, ErrorKind::resource_exhausted, options_.rank, kNoMemory);
    if (operation == nullptr) return std::make_shared<const ErrorInfo>(std::move(info));
    info.message = fmt::format("QCCL rank {}, group '{}': {} #{}: {}", options_.rank, group.name, operation->describe(),
                               operation->sequence(), kNoMemory);
    info.operation = operation->name();
    info.sequence = operation->sequence();
    return std::make_shared<const ErrorInfo>(std::move(info));
  } catch (const std::bad_alloc&) {
    return no_memory_;
  }
}

void Engine::fail_all_groups() {
  failure_ = no_memory_;
  sweep_needed_ = true;
  for (auto& [id, group] : groups_) run_out(*group, nullptr);
}

// What was under way is not known: it may have been of any group.
void Engine::abandon_all_groups() {
  fail_all_groups();
  try {
    sweep_failed_groups();
    control_.send();
  } catch (const std::bad_alloc&) {
    sweep_needed_ = true;
  }
}

// Frames that were lost here may have been of any group.
void Engine::withdraw_placed() {
  try {
    transport_.withdraw();
  } catch (const std::bad_alloc&) {
    fail_all_groups();
  }
}

void Engine::run_out_of_memory(std::uint64_t id) {
  Group* const target = group(id);
  if (target == nullptr) return;
  run_out(*target, nullptr);
  sweep_failed_groups();
}

void Engine::refuse_group(std::uint64_t id, std::vector<int>&& ranks) {
  if (group(id) != nullptr) {
    run_out_of_memory(id);
    return close_group(id);
  }
  groups_.close(id);
  if (refused_.size() == kMaxRefusals) return;
  Group& never_opened = refused_.emplace_back();
  never_opened.id = id;
  never_opened.ranks = std::move(ranks);
  never_opened.failure = no_memory_;
  never_opened.is_untold = true;
  tell_refusals();
}

void Engine::tell_refusals() {
  for (Group& never_opened : refused_) tell_members(never_opened);
  std::erase_if(refused_, [](const Group& group) { return !group.is_untold; });
}

}  // namespace qccl::engine
