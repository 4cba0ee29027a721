#include "engine/state/call_ledger.h"

#include "engine/state/group.h"
#include "engine/state/operation.h"

namespace qccl::engine {
namespace {

std::size_t kind_of(const CallArguments& arguments) {
  if (arguments.message) return arguments.message->incoming ? kRecvKind : kSendKind;
  return static_cast<std::size_t>(arguments.plan->call().collective);
}

}  // namespace

std::string_view call_kind_name(std::size_t kind) {
  if (kind == kSendKind) return "send";
  return kind == kRecvKind ? "recv" : to_string(static_cast<Collective>(kind));
}

std::pair<const std::string, GroupTotals>& CallLedger::open(const std::string& name, int size) {
  const bool is_full = groups_.size() >= kMostNames && !groups_.contains(name);
  auto& row = *groups_.try_emplace(is_full ? "others" : name).first;
  row.second.size = size;
  return row;
}

void CallLedger::stop_timer(const CallTimer& timer, TimePoint now) {
  if (timer.weight == 1 && --under_way_ == 0) busy_ += now - busy_since_;
  if (timer.weight > 1 && under_way_ == 0) busy_ += timer.weight * (now - timer.since);
}

void CallLedger::end(Operation& operation, bool well, TimePoint now) {
  const CallTimer timer = std::exchange(operation.timer(), {});
  if (timer.weight > 0) stop_timer(timer, now);
  const CallArguments& arguments = operation.arguments();
  const std::size_t kind = kind_of(arguments);
  auto& [name, group] = *operation.group().totals;
  last_ = {&name, operation.sequence(), kind, timer.weight > 0 ? now : TimePoint{}};
  if (!arguments.is_logged) return;
  CallTotals& totals = group.by_kind[kind];
  ++(well ? totals.calls : totals.failures);
  totals.bytes += operation.input_bytes();
  totals.payload_bytes += operation.payload_bytes();
  totals.plain_bytes += operation.plain_bytes();
  totals.time += timer.weight * (now - timer.since);
}

void CallLedger::end_on_spot(const Group& group, std::uint64_t number, Collective collective, bool counts,
                             std::uint64_t bytes, Nanoseconds time) {
  const auto kind = static_cast<std::size_t>(collective);
  last_ = {&group.totals->first, number, kind, {}};
  if (!counts) return;
  CallTotals& totals = group.totals->second.by_kind[kind];
  ++totals.calls;
  totals.bytes += bytes;
  totals.payload_bytes += bytes;
  totals.plain_bytes += bytes;
  totals.time += kSampled * time;
  if (under_way_ == 0) busy_ += kSampled * time;
}

}  // namespace qccl::engine
