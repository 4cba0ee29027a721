#include "engine/call/call_ledger.h"

#include "engine/call/call_arguments.h"

namespace qccl::engine {

std::size_t call_kind(const CallArguments& arguments) {
  if (arguments.message) return arguments.message->incoming ? kRecvKind : kSendKind;
  return static_cast<std::size_t>(arguments.plan->call().collective);
}

std::string_view call_kind_name(std::size_t kind) {
  if (kind == kSendKind) return "send";
  return kind == kRecvKind ? "recv" : to_string(static_cast<Collective>(kind));
}

NamedTotals& CallLedger::open(const std::string& name, int size) {
  const bool is_full = groups_.size() >= kMostNames && !groups_.contains(name);
  NamedTotals& row = *groups_.try_emplace(is_full ? "others" : name).first;
  row.second.size = size;
  return row;
}

}  // namespace qccl::engine
