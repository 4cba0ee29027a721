#include "engine/state/operation_recorder.h"

#include <new>
#include <utility>

#include "observe/log_store.h"

namespace qccl::engine {
namespace {

std::int64_t nanoseconds(TimePoint time) { return time.time_since_epoch().count(); }

// As DeepSpeed counts it: the tensor that the call names first.
std::uint64_t elements_of(const ResolvedCall& call, const Group& group) {
  if (call.collective == Collective::barrier) return 0;
  if (call.collective == Collective::scatter) return piece_elements(call, group.rank.value());
  return input_elements(call, group.world(), group.rank.value());
}

// nccl-tests' size: the parts of all ranks where ranks have parts.
std::uint64_t bandwidth_elements(const ResolvedCall& call, const Group& group) {
  if (call.collective == Collective::barrier) return 0;
  return has_pieces(call.collective) ? piece_begin(call, group.world()) : call.count;
}

void describe_message(OperationRecord& record, const CallArguments& arguments) {
  const Message& message = *arguments.message;
  record.is_message = true;
  record.peer = message.incoming ? arguments.work->source() : message.peer.value();
  record.count = message.count;
  record.type = message.type;
  record.compression = message.compression;
  record.bytes = record.bandwidth_bytes = message.count * element_bytes(message.type);
}

void describe_collective(OperationRecord& record, const CallArguments& arguments, const Group& group) {
  const ResolvedCall& call = arguments.plan->call();
  const std::uint64_t element = element_bytes(call.type);
  record.peer = is_rooted(call.collective) ? call.root : -1;
  record.count = call.counts.empty() ? call.count : elements_of(call, group);
  record.type = call.type;
  record.algorithm = call.algorithm;
  record.path = call.board ? DataPath::board : DataPath::frames;
  record.device = describe_place(arguments);
  if (reduces_on_board(arguments)) record.path = DataPath::shared_buffer;
  record.compression = call.compression;
  record.bytes = elements_of(call, group) * element;
  record.bandwidth_bytes = bandwidth_elements(call, group) * element;
}

}  // namespace

bool OperationRecorder::is_on() const { return log_ != nullptr && log_->is_on(); }

void OperationRecorder::begin(Operation& operation) const {
  const CallArguments& arguments = operation.arguments();
  if (!arguments.is_logged || !is_on() || !log_->wants(arguments.name(), arguments.log_name)) return;
  operation.log_notes().is_wanted = true;
  operation.log_notes().times.posted_ns =
      nanoseconds(arguments.posted == TimePoint{} ? clock_.now() : arguments.posted);
}

// Frames that are sent meanwhile are the operation's own: a rank's engine has one thread.
Result<bool> OperationRecorder::advance(Operation& operation) const {
  LogNotes& notes = operation.log_notes();
  const TimePoint before = notes.times.started_ns == 0 ? clock_.now() : TimePoint{};
  const TrafficCounters sent = frame_sender_.counters();
  auto advanced = operation.advance();
  notes.wire_bytes += frame_sender_.counters().bytes() - sent.bytes();
  if (notes.times.started_ns == 0 && advanced.ok() && *advanced) notes.times.started_ns = nanoseconds(before);
  return advanced;
}

void OperationRecorder::end(Operation& operation, const ErrorInfo* failure) const {
  LogNotes& notes = operation.log_notes();
  const CallArguments& arguments = operation.arguments();
  notes.times.ended_ns = nanoseconds(clock_.now());
  // A message that arrived before its recv ends without a step.
  if (notes.times.started_ns == 0 && failure == nullptr) notes.times.started_ns = notes.times.posted_ns;
  if (arguments.work != nullptr) arguments.work->set_times(notes.times);
  try {
    add(operation, failure);
  } catch (const std::bad_alloc&) {
  }
}

void OperationRecorder::add(Operation& operation, const ErrorInfo* failure) const {
  const LogNotes& notes = operation.log_notes();
  const CallArguments& arguments = operation.arguments();
  const Group& group = operation.group();
  OperationRecord record;
  arguments.message ? describe_message(record, arguments) : describe_collective(record, arguments, group);
  record.operation = arguments.name();
  record.name = arguments.log_name;
  record.group = group.name;
  record.group_id = group.id;
  record.group_size = group.world();
  record.sequence = operation.sequence();
  record.wire_bytes = notes.wire_bytes;
  record.payload_bytes = operation.payload_bytes();
  record.plain_bytes = operation.plain_bytes();
  record.times = notes.times;
  if (failure != nullptr) record.error = failure->message;
  log_->add(std::move(record));
}

}  // namespace qccl::engine
