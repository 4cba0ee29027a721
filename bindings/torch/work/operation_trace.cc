#include "work/operation_trace.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <utility>

namespace qccl::torch_binding {
namespace {

std::int64_t now_ns() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_1970).count();
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\u%04x", c);
    out += escape;
  }
  return out + '"';
}

template <class Items, class Write>
std::string list(const Items& items, Write write) {
  std::string out = "[";
  for (const auto& item : items) out += (out.size() > 1 ? ", " : "") + write(item);
  return out + "]";
}

std::string number_text(std::int64_t number) { return std::to_string(number); }

std::string sizes_of(const std::vector<OperationTrace::Tensor>& tensors) {
  return list(tensors, [](const auto& tensor) { return list(tensor.size, number_text); });
}

std::string types_of(const std::vector<OperationTrace::Tensor>& tensors) {
  return list(tensors, [](const auto& tensor) { return quoted(tensor.type); });
}

}  // namespace

std::size_t OperationTrace::add_group(std::string name, std::vector<std::int64_t> ranks) {
  const std::lock_guard lock(mutex_);
  groups_.push_back({.name = std::move(name), .ranks = std::move(ranks), .entries = {}});
  return groups_.size() - 1;
}

OperationTrace::Place OperationTrace::begin(std::size_t group, Operation operation) {
  const std::int64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  Group& owner = groups_.at(group);
  if (!operation.is_message) owner.last_begun = operation.sequence;
  if (owner.entries.size() == kKept) owner.entries.pop_front();
  owner.entries.push_back({records_, std::move(operation), 0, now, 0, State::started, {}});
  return {group, records_++};
}

void OperationTrace::end(Place place, const std::string& failure) {
  const std::int64_t now = now_ns();
  std::string path;
  {
    const std::lock_guard lock(mutex_);
    Group& owner = groups_.at(place.group);
    const auto found = std::lower_bound(owner.entries.begin(), owner.entries.end(), place.record,
                                        [](const Entry& entry, std::uint64_t record) { return entry.record < record; });
    if (found != owner.entries.end() && found->record == place.record) {
      found->ended_ns = now;
      found->state = failure.empty() ? State::completed : State::failed;
      found->failure = failure;
      Operation& operation = found->operation;
      // The function may hold memory of the library, so it is released after the call.
      if (operation.number) found->number = std::exchange(operation.number, nullptr)();
      if (failure.empty() && !operation.is_message) owner.last_ended = std::max(owner.last_ended, operation.sequence);
    }
    if (failure.empty() || std::exchange(owner.failed, true) || dump_prefix_.empty()) return;
    path = dump_prefix_ + std::to_string(rank_) + ".json";
  }
  std::ofstream(path) << to_json();  // best effort: the failure itself is reported to the caller
}

void OperationTrace::dump_to(std::string prefix) {
  const std::lock_guard lock(mutex_);
  dump_prefix_ = std::move(prefix);
}

std::string OperationTrace::to_json() const {
  const std::lock_guard lock(mutex_);
  std::string out = "{\"version\": \"2.10\", \"rank\": " + std::to_string(rank_);
  write_groups(out);
  out += ", \"entries\": [";
  bool first = true;
  for (std::size_t number = 0; number < groups_.size(); ++number) {
    for (const Entry& entry : groups_[number].entries) {
      out += std::exchange(first, false) ? "\n" : ",\n";
      write(out, entry, groups_[number], number);
    }
  }
  return out + "]}\n";
}

void OperationTrace::write_groups(std::string& out) const {
  out += ", \"pg_config\": {";
  for (std::size_t number = 0; number < groups_.size(); ++number) {
    const Group& group = groups_[number];
    if (number > 0) out += ", ";
    out += "\"" + std::to_string(number) + "\": {\"name\": " + quoted(group.name) +
           ", \"desc\": " + quoted(group.name) + ", \"ranks\": \"" + list(group.ranks, number_text) + "\"}";
  }
  out += "}, \"pg_status\": {";
  for (std::size_t number = 0; number < groups_.size(); ++number) {
    const Group& group = groups_[number];
    if (number > 0) out += ", ";
    out += "\"" + std::to_string(number) + "\": {\"last_enqueued_collective\": \"" + std::to_string(group.last_begun) +
           "\", \"last_started_collective\": \"" + std::to_string(group.last_begun) +
           "\", \"last_completed_collective\": \"" + std::to_string(group.last_ended) + "\"}";
  }
  out += "}";
}

void OperationTrace::write(std::string& out, const Entry& entry, const Group& group, std::size_t number) {
  const Operation& operation = entry.operation;
  static constexpr const char* kStates[] = {"started", "completed", "failed"};
  const auto field = [&](const char* name, const std::string& value) {
    out += (out.back() == '{' ? "\"" : ", \"") + std::string(name) + "\": " + value;
  };
  out += "{";
  field("frames", "[]");
  field("record_id", std::to_string(entry.record));
  field("pg_id", std::to_string(number));
  field("process_group", "[" + quoted(group.name) + ", " + quoted(group.name) + "]");
  field("collective_seq_id", std::to_string(operation.is_message ? 0 : operation.sequence));
  field("p2p_seq_id", std::to_string(operation.is_message ? operation.sequence : 0));
  field("qccl_seq_id", std::to_string(operation.number ? operation.number() : entry.number));
  field("qccl_operations", std::to_string(operation.parts));
  field("op_id", std::to_string(entry.record));
  field("profiling_name", quoted(operation.name));
  field("is_p2p", operation.is_message ? "true" : "false");
  if (operation.is_message) field("peer", std::to_string(operation.peer));
  field("time_created_ns", std::to_string(entry.created_ns));
  field("time_discovered_started_ns", std::to_string(entry.created_ns));
  field("time_discovered_completed_ns", entry.ended_ns == 0 ? "null" : std::to_string(entry.ended_ns));
  field("input_sizes", sizes_of(operation.inputs));
  field("input_dtypes", types_of(operation.inputs));
  field("output_sizes", sizes_of(operation.outputs));
  field("output_dtypes", types_of(operation.outputs));
  field("timeout_ms", std::to_string(operation.timeout_ms));
  field("state", quoted(kStates[static_cast<std::size_t>(entry.state)]));
  field("retired", entry.ended_ns == 0 ? "false" : "true");
  if (!entry.failure.empty()) field("error", quoted(entry.failure));
  out += "}";
}

}  // namespace qccl::torch_binding
