// The part of Engine that keeps the log: the only code that takes times for it, each once.
#include <new>

#include "engine/engine.h"
#include "observe/log_store.h"

namespace qccl::engine {
namespace {

using internal::LogStore;

std::int64_t nanoseconds(TimePoint time) { return time.time_since_epoch().count(); }

std::string_view operation_of(const Post& post) {
  if (!post.message) return to_string(post.call.collective);
  return post.message->incoming ? "recv" : "send";
}

// As DeepSpeed counts it: the tensor that the call names first.
std::uint64_t elements_of(const Call& call, const Group& group) {
  if (call.collective == Collective::barrier) return 0;
  if (call.collective == Collective::scatter) return piece_elements(call, group.rank);
  return input_elements(call, group.world(), group.rank);
}

// nccl-tests' size: all parts of those that have parts.
std::uint64_t bandwidth_elements(const Call& call, const Group& group) {
  switch (call.collective) {
    case Collective::all_gather:
    case Collective::gather:
    case Collective::scatter:
    case Collective::reduce_scatter:
    case Collective::all_to_all: return piece_begin(call, group.world());
    case Collective::barrier: return 0;
    default: return call.count;
  }
}

DataPath path_of(const Post& post) {
  if (reduces_on_board(post)) return DataPath::shared_buffer;
  return post.call.board ? DataPath::board : DataPath::frames;
}

LogStore::Entry message_entry(const Post& post) {
  const std::uint64_t bytes = post.call.count * element_bytes(post.call.type);
  return {.count = post.call.count,
          .bytes = bytes,
          .bandwidth_bytes = bytes,
          .peer = post.message->incoming ? post.work->source() : post.message->peer,
          .is_message = true};
}

LogStore::Entry collective_entry(const Post& post, const Group& group) {
  const Call& call = post.call;
  const std::uint64_t element = element_bytes(call.type);
  return {.count = call.counts.empty() ? call.count : elements_of(call, group),
          .bytes = elements_of(call, group) * element,
          .bandwidth_bytes = bandwidth_elements(call, group) * element,
          .compression = call.compression,
          .peer = is_rooted(call.collective) ? call.root : -1,
          .algorithm = call.algorithm,
          .path = path_of(post)};
}

}  // namespace

bool Engine::is_logging() const { return options_.log != nullptr && options_.log->is_on(); }

void Engine::begin_log(Operation& operation) {
  const Post& post = operation.posted();
  if (!post.is_logged || !is_logging() || !options_.log->wants(operation_of(post), post.log_name)) return;
  operation.log_notes().is_wanted = true;
  operation.log_notes().times.posted_ns = nanoseconds(post.posted == TimePoint{} ? clock_.now() : post.posted);
}

// What goes out while an operation takes its steps is its own: one rank's engine has one thread.
Result<bool> Engine::advance_logged(Operation& operation) {
  LogNotes& notes = operation.log_notes();
  const TimePoint before = notes.times.started_ns == 0 ? clock_.now() : TimePoint{};
  const TrafficCounters sent = frame_sender_.counters();
  auto advanced = operation.advance();
  notes.wire_bytes += frame_sender_.counters().bytes() - sent.bytes();
  notes.payload_bytes += frame_sender_.counters().data_bytes() - sent.data_bytes();
  if (notes.times.started_ns == 0 && advanced.ok() && *advanced) notes.times.started_ns = nanoseconds(before);
  return advanced;
}

// A record that there is no memory for is missing in the log.
void Engine::end_log(Operation& operation, const ErrorInfo* failure) {
  LogNotes& notes = operation.log_notes();
  const Post& post = operation.posted();
  notes.times.ended_ns = nanoseconds(clock_.now());
  // A message that was there before its recv ends without a move.
  if (notes.times.started_ns == 0 && failure == nullptr) notes.times.started_ns = notes.times.posted_ns;
  if (post.work != nullptr) post.work->set_times(notes.times);
  try {
    add_to_log(operation, failure);
  } catch (const std::bad_alloc&) {
  }
}

void Engine::add_to_log(Operation& operation, const ErrorInfo* failure) {
  const LogNotes& notes = operation.log_notes();
  const Post& post = operation.posted();
  const Group& group = operation.group();
  LogStore::Entry entry = post.message ? message_entry(post) : collective_entry(post, group);
  entry.operation = operation_of(post);
  entry.type = post.call.type;
  entry.group_id = group.id;
  entry.sequence = operation.sequence();
  entry.wire_bytes = notes.wire_bytes;
  entry.payload_bytes = notes.payload_bytes;
  entry.plain_bytes = operation.plain_bytes();
  entry.times = notes.times;
  options_.log->add(entry, group.name, group.world(), post.log_name,
                    failure != nullptr ? failure->message : std::string());
}

}  // namespace qccl::engine
