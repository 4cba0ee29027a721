#include "work/operation_trace.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "work/pickle.h"

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

// The word for it in torch's list of operations, which its tool insists on.
std::string_view known_name(std::string_view title) {
  const std::string_view name = title.substr(title.find(':') + 1);
  if (name == "sparse_all_reduce") return "all_reduce";
  if (name == "put" || name == "signal") return "send";
  if (name == "wait_signal" || name == "recvAnySource") return "recv";
  return name;
}

bool sends(std::string_view name) { return name == "send"; }

std::size_t index_of(const std::vector<std::int64_t>& ranks, std::int64_t rank) {
  return static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

}  // namespace

std::size_t OperationTrace::add_group(std::string name, std::vector<std::int64_t> ranks) {
  const std::lock_guard lock(mutex_);
  const auto namesakes = std::ranges::count(groups_, name, &Group::given_name);
  std::string shown = namesakes == 0 ? name : name + "#" + std::to_string(namesakes + 1);
  groups_.push_back({.given_name = std::move(name), .shown = {std::move(shown), std::move(ranks)}});
  return groups_.size() - 1;
}

OperationTrace::Channel OperationTrace::channel_of(const Group& group, const Operation& operation) const {
  const auto& [name, ranks] = group.shown;
  const std::string_view word = known_name(operation.name);
  const bool is_alone = operation.peer < 0;
  const std::int64_t peer = is_alone ? rank_ : ranks.at(static_cast<std::size_t>(operation.peer));
  const std::int64_t sender = sends(word) ? rank_ : peer;
  const std::int64_t receiver = sends(word) ? peer : rank_;
  std::vector<std::int64_t> members{std::min(sender, receiver)};
  if (sender != receiver) members.push_back(std::max(sender, receiver));
  const std::string from = std::to_string(index_of(members, sender));
  const std::string to = std::to_string(index_of(members, receiver));
  std::string title = "gloo:" + std::string(word);
  if (word == "send") title += " " + from + "->" + to;
  if (word == "recv") title += " " + to + "<-" + from;
  const std::string ends = is_alone ? std::to_string(rank_) : std::to_string(sender) + "->" + std::to_string(receiver);
  return {std::move(title), {name + ":" + ends, std::move(members)}};
}

// Requires the lock.
void OperationTrace::file(Entry& entry) {
  const Operation& operation = entry.operation;
  if (operation.is_message) {
    entry.channel = channel_of(groups_[entry.group], operation);
    entry.sequence = ++messages_[entry.channel.shown.name];
  } else {
    entry.channel.title = "gloo:" + std::string(known_name(operation.name));
    entry.sequence = operation.sequence;
  }
}

OperationTrace::Record OperationTrace::begin(std::size_t group, Operation operation) {
  const std::int64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  Group& owner = groups_.at(group);
  ++owner.in_flight;
  if (!operation.is_message) owner.last_begun = operation.sequence;
  if (entries_.size() == kKept) {
    entries_.pop_front();
    ++first_record_;
  }
  entries_.push_back({.group = group, .operation = std::move(operation), .created_ns = now});
  file(entries_.back());
  return first_record_ + entries_.size() - 1;
}

void OperationTrace::end(std::size_t group, Record record, const std::string& failure, int source) {
  const std::int64_t now = now_ns();
  {
    const std::lock_guard lock(mutex_);
    Group& owner = groups_.at(group);
    --owner.in_flight;
    if (record >= first_record_) {
      Entry& entry = entries_.at(record - first_record_);
      entry.ended_ns = now;
      entry.failure = failure;
      Operation& operation = entry.operation;
      if (operation.is_message && operation.peer < 0 && source >= 0) {
        operation.peer = source;
        file(entry);
      }
      // The function may hold memory of the library, so it is released after the call.
      if (operation.number) entry.number = std::exchange(operation.number, nullptr)();
      if (failure.empty() && !operation.is_message) owner.last_ended = std::max(owner.last_ended, operation.sequence);
    }
    if (failure.empty()) return;
    const bool is_first = !std::exchange(owner.failed, true);
    if (!is_first && owner.in_flight > 0) return;
  }
  write_dump();
}

void OperationTrace::fail(std::size_t group) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(groups_.at(group).failed, true)) return;
  }
  write_dump();
}

void OperationTrace::dump_to(std::string prefix) {
  const std::lock_guard lock(mutex_);
  dump_prefix_ = std::move(prefix);
}

bool OperationTrace::writes_dumps() const {
  const std::lock_guard lock(mutex_);
  return !dump_prefix_.empty();
}

// Best effort: the failure itself is reported to the caller. A reader sees a whole file, or none.
void OperationTrace::write_dump() {
  const std::lock_guard one_writer(writing_);
  std::string path;
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    if (dump_prefix_.empty()) return;
    path = dump_prefix_ + std::to_string(rank_);
    text = pickle(to_tree());
  }
  std::error_code ignored;
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty()) {
    std::filesystem::create_directories(folder, ignored);
  }
  const std::string part = path + "." + std::to_string(getpid());
  std::ofstream(part, std::ios::binary) << text;
  std::filesystem::rename(part, path, ignored);
}

std::string OperationTrace::to_json() const {
  const std::lock_guard lock(mutex_);
  return to_tree().dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

nlohmann::ordered_json OperationTrace::tree_of(const Entry& entry, Record record) const {
  const Operation& operation = entry.operation;
  const bool has_ended = entry.ended_ns != 0;
  const std::string& group = operation.is_message ? entry.channel.shown.name : groups_[entry.group].shown.name;
  Json json{
      {"frames", Json::array()},
      {"record_id", record},
      {"pg_id", entry.group},
      {"process_group", {group, group}},
      {"collective_seq_id", entry.sequence},
      {"p2p_seq_id", operation.is_message ? entry.sequence : 0},
      {"qccl_seq_id", operation.number ? operation.number() : entry.number},
      {"qccl_operations", operation.parts},
      {"op_id", record},
      {"profiling_name", entry.channel.title},
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
}

// Requires the lock.
nlohmann::ordered_json OperationTrace::to_tree() const {
  Json json{{"version", "2.10"},
            {"rank", rank_},
            {"pg_config", Json::object()},
            {"pg_status", Json::object()},
            {"entries", Json::array()}};
  const auto add_config = [&json](const Shown& shown) {
    json["pg_config"][shown.name] = {{"name", shown.name}, {"desc", shown.name}, {"ranks", list_text(shown.ranks)}};
  };
  for (std::size_t number = 0; number < groups_.size(); ++number) {
    const Group& group = groups_[number];
    const std::string last_begun = std::to_string(group.last_begun);
    add_config(group.shown);
    json["pg_status"][std::to_string(number)] = {{"last_enqueued_collective", last_begun},
                                                 {"last_started_collective", last_begun},
                                                 {"last_completed_collective", std::to_string(group.last_ended)}};
  }
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    if (entry.operation.is_message) add_config(entry.channel.shown);
    json["entries"].push_back(tree_of(entry, first_record_ + index));
  }
  return json;
}

}  // namespace qccl::torch_binding
