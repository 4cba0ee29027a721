#include "work/operation_trace.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

namespace qccl::torch_binding {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t now_ns() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_1970).count();
}

// "[7, 8]"
std::string list_text(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

template <class Field>
Json list_of(const std::vector<OperationTrace::Tensor>& tensors, Field OperationTrace::Tensor::*field) {
  Json list = Json::array();
  for (const auto& tensor : tensors) list.push_back(tensor.*field);
  return list;
}

}  // namespace

std::size_t OperationTrace::add_group(std::string name, std::vector<std::int64_t> ranks) {
  const std::lock_guard lock(mutex_);
  groups_.push_back({.name = std::move(name), .ranks = std::move(ranks), .entries = {}});
  return groups_.size() - 1;
}

OperationTrace::Handle OperationTrace::begin(std::size_t group, Operation operation) {
  const std::int64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  Group& owner = groups_.at(group);
  if (!operation.is_message) owner.last_begun = operation.sequence;
  if (owner.entries.size() == kKept) owner.entries.pop_front();
  owner.entries.push_back({records_, std::move(operation), 0, now, 0, {}});
  return {group, records_++};
}

void OperationTrace::end(Handle handle, const std::string& failure) {
  const std::int64_t now = now_ns();
  std::string path;
  {
    const std::lock_guard lock(mutex_);
    Group& owner = groups_.at(handle.group);
    const auto found = std::ranges::lower_bound(owner.entries, handle.record, {}, &Entry::record);
    if (found != owner.entries.end() && found->record == handle.record) {
      found->ended_ns = now;
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
  const auto entry_json = [](const Entry& entry, const Group& group, std::size_t number) {
    const Operation& operation = entry.operation;
    const bool has_ended = entry.ended_ns != 0;
    Json json{
        {"frames", Json::array()},
        {"record_id", entry.record},
        {"pg_id", number},
        {"process_group", {group.name, group.name}},
        {"collective_seq_id", operation.is_message ? 0 : operation.sequence},
        {"p2p_seq_id", operation.is_message ? operation.sequence : 0},
        {"qccl_seq_id", operation.number ? operation.number() : entry.number},
        {"qccl_operations", operation.parts},
        {"op_id", entry.record},
        {"profiling_name", operation.name},
        {"is_p2p", operation.is_message},
        {"time_created_ns", entry.created_ns},
        {"time_discovered_started_ns", entry.created_ns},
        {"time_discovered_completed_ns", has_ended ? Json(entry.ended_ns) : Json()},
        {"input_sizes", list_of(operation.inputs, &Tensor::size)},
        {"input_dtypes", list_of(operation.inputs, &Tensor::type)},
        {"output_sizes", list_of(operation.outputs, &Tensor::size)},
        {"output_dtypes", list_of(operation.outputs, &Tensor::type)},
        {"timeout_ms", operation.timeout_ms},
        {"state", !has_ended              ? "started"
                  : entry.failure.empty() ? "completed"
                                          : "failed"},
        {"retired", has_ended},
    };
    if (operation.is_message) json["peer"] = operation.peer;
    if (!entry.failure.empty()) json["error"] = entry.failure;
    return json;
  };
  Json json{{"version", "2.10"},
            {"rank", rank_},
            {"pg_config", Json::object()},
            {"pg_status", Json::object()},
            {"entries", Json::array()}};
  const std::lock_guard lock(mutex_);
  for (std::size_t number = 0; number < groups_.size(); ++number) {
    const Group& group = groups_[number];
    const std::string key = std::to_string(number);
    const std::string last_begun = std::to_string(group.last_begun);
    json["pg_config"][key] = {{"name", group.name}, {"desc", group.name}, {"ranks", list_text(group.ranks)}};
    json["pg_status"][key] = {{"last_enqueued_collective", last_begun},
                              {"last_started_collective", last_begun},
                              {"last_completed_collective", std::to_string(group.last_ended)}};
    for (const Entry& entry : group.entries) json["entries"].push_back(entry_json(entry, group, number));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace qccl::torch_binding
