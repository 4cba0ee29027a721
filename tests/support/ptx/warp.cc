#include "support/ptx/warp.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

namespace qccl::ptx {
namespace {

// More than any kernel takes for the slices of a test.
constexpr std::uint64_t kMostInstructions = std::uint64_t{1} << 34;

std::uint64_t count_of(Mask lanes) {
  return lanes == kAllLanes ? kLanes : static_cast<std::uint64_t>(std::popcount(lanes));
}

void fill(std::byte* slot, const Constant& constant) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const auto bytes = static_cast<std::size_t>(constant.bits / 8);
    std::memcpy(slot + lane * bytes, &constant.value, bytes);
  }
}

}  // namespace

Counts& Counts::operator+=(const Counts& other) {
  instructions += other.instructions;
  warp_instructions += other.warp_instructions;
  accesses += other.accesses;
  wide_accesses += other.wide_accesses;
  shared_accesses += other.shared_accesses;
  return *this;
}

Warp::Warp(const Program& program)
    : program_(program),
      registers_(new std::byte[program.register_bytes]),
      local_(kLanes, TrackedMemory("local", program.local_bytes)),
      parameters_(kLanes, TrackedMemory("parameter", program.parameter_bytes)) {
  for (const Constant& constant : program.constants) {
    if (constant.bits == 1) {
      *at<Mask>(constant.slot) = constant.value != 0 ? kAllLanes : 0;
    } else {
      fill(registers_.get() + constant.slot, constant);
    }
  }
}

void Warp::start(const Entry& entry, const std::vector<std::vector<std::byte>>& parameters) {
  entry_ = &entry;
  counts_ = {};
  for (auto& memory : parameters_) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      std::memcpy(memory.at(entry.parameters[i].offset, parameters[i].size(), true), parameters[i].data(),
                  parameters[i].size());
    }
    memory.keep();
  }
}

void Warp::run(const WarpRun& run) {
  run_ = run;
  begin();
  while (!groups_.empty()) step(choose());
}

void Warp::begin() {
  const WarpIndex& index = run_.index;
  for (auto& memory : local_) memory.forget();
  for (auto& memory : parameters_) memory.forget();
  const auto special = [&](Special which) {
    return at<std::uint32_t>(program_.specials[static_cast<std::size_t>(which)]);
  };
  std::iota(special(Special::thread), special(Special::thread) + kLanes, index.first_thread);
  std::iota(special(Special::lane), special(Special::lane) + kLanes, 0u);
  std::fill_n(special(Special::block), kLanes, index.block);
  std::fill_n(special(Special::block_count), kLanes, index.block_count);
  std::fill_n(special(Special::thread_count), kLanes, index.thread_count);
  groups_ = {{kAllLanes, entry_->begin, {}, false}};
  if (run_.order != Order::together) part_again(0);
}

// ---- which lanes are next

std::size_t Warp::choose() {
  const auto is_before = [&](const Group& a, const Group& b) {
    if (a.waits != b.waits) return b.waits;
    if (run_.order == Order::forwards) return std::countr_zero(a.lanes) < std::countr_zero(b.lanes);
    if (run_.order == Order::backwards) return std::countr_zero(a.lanes) > std::countr_zero(b.lanes);
    if (a.calls.size() != b.calls.size()) return a.calls.size() > b.calls.size();
    return a.at < b.at;
  };
  const auto next = std::min_element(groups_.begin(), groups_.end(), is_before);
  if (next->waits) fail_waiting();
  return static_cast<std::size_t>(next - groups_.begin());
}

// Joins the groups that are where this one is, and returns its index.
std::size_t Warp::join_equals(std::size_t index) {
  for (std::size_t other = groups_.size(); other-- > 0;) {
    if (other == index || !groups_[other].is_beside(groups_[index])) continue;
    groups_[index].lanes |= groups_[other].lanes;
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(other));
    if (other < index) --index;
  }
  return index;
}

void Warp::part_again(std::size_t index) {
  const Group whole = groups_[index];
  groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(index));
  for (Mask left = whole.lanes; left != 0; left &= left - 1) {
    groups_.push_back(whole);
    groups_.back().lanes = left & (0 - left);
  }
}

// Runs a group until it ends, waits or parts, or until it may have met another one.
void Warp::step(std::size_t index) {
  if (run_.order == Order::together) index = join_equals(index);
  std::uint32_t meeting = ~0u;  // where the next group is
  if (run_.order == Order::together) {
    for (const Group& other : groups_) {
      if (other.at > groups_[index].at) meeting = std::min(meeting, other.at);
    }
  }
  while (advance(index)) {
    if (groups_[index].at >= meeting) return;
  }
}

// ---- instructions

// Runs the group's next instruction. False if the groups are others now.
bool Warp::advance(std::size_t index) {
  Group& group = groups_[index];
  const Instruction& instruction = program_.code[group.at];
  Mask lanes = group.lanes;
  if (instruction.has_predicate) {
    const Mask predicate = *at<Mask>(instruction.predicate);
    lanes &= instruction.is_negated ? ~predicate : predicate;
  }
  if (instruction.flow == Flow::meet) return meet(index);
  counts_.instructions += count_of(group.lanes);
  if (++counts_.warp_instructions > kMostInstructions) fail("the kernel does not end", group.at);
  switch (instruction.flow) {
    case Flow::next:
      if (lanes != 0) {
        try {
          lane_ = -1;
          instruction.run(*this, instruction, lanes);
        } catch (const Fault& fault) {
          fail(fault.what(), group.at);
        }
      }
      ++group.at;
      return true;
    case Flow::branch:
      if (lanes == group.lanes) {
        const bool goes_on = instruction.target > group.at;
        group.at = instruction.target;
        return goes_on || groups_.size() == 1;
      }
      if (lanes == 0) {
        ++group.at;
        return true;
      }
      branch(index, lanes, instruction.target);
      return false;
    case Flow::call: call(group, instruction); return groups_.size() == 1;
    case Flow::ret: end_call(index, lanes); return false;
    case Flow::meet: break;
  }
  return false;
}

// Some of the group's lanes go to the target.
void Warp::branch(std::size_t index, Mask taken, std::uint32_t target) {
  Group parted = groups_[index];
  parted.lanes = taken;
  parted.at = target;
  groups_[index].lanes &= ~taken;
  ++groups_[index].at;
  groups_.push_back(std::move(parted));
}

void Warp::copy(const std::vector<Copy>& copies, Mask lanes) {
  for (const Copy& each : copies) {
    for (Mask left = lanes; left != 0; left &= left - 1) {
      parameters_[static_cast<std::size_t>(std::countr_zero(left))].copy(each.from.offset, each.to, each.from.bytes);
    }
  }
}

void Warp::call(Group& group, const Instruction& instruction) {
  const Call& callee = program_.calls[instruction.target];
  const auto is_within = [&](std::uint32_t caller) {
    return program_.calls[program_.code[caller].target].begin == callee.begin;
  };
  if (instruction.has_predicate) fail("calls under a predicate are not supported", group.at);
  if (std::ranges::any_of(group.calls, is_within)) fail("recursive calls are not supported", group.at);
  copy(callee.arguments, group.lanes);
  group.calls.push_back(group.at);
  group.at = callee.begin;
}

// Lanes of the group return, from a call or from the kernel.
void Warp::end_call(std::size_t index, Mask ended) {
  Group returned = groups_[index];
  returned.lanes = ended;
  groups_[index].lanes &= ~ended;
  ++groups_[index].at;
  if (groups_[index].lanes == 0) groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(index));
  if (ended == 0 || returned.calls.empty()) return;
  const std::uint32_t caller = returned.calls.back();
  copy(program_.calls[program_.code[caller].target].results, ended);
  returned.calls.pop_back();
  returned.at = caller + 1;
  groups_.push_back(std::move(returned));
}

// The lanes wait for those that the instruction names, then all run it.
bool Warp::meet(std::size_t index) {
  const std::uint32_t at_instruction = groups_[index].at;
  const Instruction& instruction = program_.code[at_instruction];
  if (instruction.has_predicate) fail("a barrier under a predicate is not supported", at_instruction);
  groups_[index].waits = true;
  index = join_equals(index);
  Group& group = groups_[index];
  if (at<Mask>(instruction.members)[std::countr_zero(group.lanes)] != group.lanes) return false;
  counts_.instructions += count_of(group.lanes);
  ++counts_.warp_instructions;
  instruction.run(*this, instruction, group.lanes);
  group.waits = false;
  ++group.at;
  if (run_.order != Order::together) part_again(index);
  return false;
}

// ---- memory

std::uint64_t Warp::address(const Instruction& instruction, int lane) {
  const Slot base = instruction.operands[0];
  const std::uint64_t from = instruction.has_wide_base ? at<std::uint64_t>(base)[lane] : at<std::uint32_t>(base)[lane];
  return from + static_cast<std::uint64_t>(instruction.offset);
}

std::byte* Warp::locate(const Instruction& instruction, int lane, std::size_t bytes, bool writes) {
  lane_ = lane;
  const std::uint64_t to = address(instruction, lane);
  if ((to & (bytes - 1)) != 0) {  // of a power of two bytes
    throw Fault("an access of " + std::to_string(bytes) + " bytes at address " + std::to_string(to) +
                ", which is not aligned");
  }
  const auto own = static_cast<std::size_t>(lane);
  switch (instruction.space) {
    case Space::generic: return locate_generic(to, lane, bytes, writes);
    case Space::shared: ++counts_.shared_accesses; return run_.memories.shared->at(to, bytes, writes);
    case Space::local: return local_[own].at(to, bytes, writes);
    case Space::param: return parameters_[own].at(to, bytes, writes);
    case Space::global: break;
  }
  ++counts_.accesses;
  if (bytes == 16) ++counts_.wide_accesses;
  return run_.memories.global->at(to, bytes, writes);
}

std::byte* Warp::locate_generic(std::uint64_t address, int lane, std::size_t bytes, bool writes) {
  const auto own = static_cast<std::size_t>(lane);
  switch (address & kWindowMask) {
    case kSharedWindow:
      ++counts_.shared_accesses;
      return run_.memories.shared->at(address & ~kWindowMask, bytes, writes);
    case kLocalWindow: return local_[own].at(address & ~kWindowMask, bytes, writes);
    case kParameterWindow: return parameters_[own].at(address & ~kWindowMask, bytes, writes);
    default: break;
  }
  ++counts_.accesses;
  if (bytes == 16) ++counts_.wide_accesses;
  return run_.memories.global->at(address, bytes, writes);
}

// ---- faults

void Warp::fail(const std::string& what, std::uint32_t at) const {
  std::string who = "block " + std::to_string(run_.index.block) + ", ";
  who += lane_ < 0 ? "threads from " + std::to_string(run_.index.first_thread)
                   : "thread " + std::to_string(run_.index.first_thread + static_cast<std::uint32_t>(lane_));
  throw Fault("PTX line " + std::to_string(program_.code[at].line) + ", \"" + program_.text[at] + "\", " + who + ": " +
              what);
}

void Warp::fail_waiting() const {
  std::string what = "lanes wait at barriers that the others don't reach:";
  for (const Group& group : groups_) {
    what += " mask " + std::to_string(group.lanes) + " at line " + std::to_string(program_.code[group.at].line) + ";";
  }
  fail(what, groups_.front().at);
}

}  // namespace qccl::ptx
