#include "engine/engine.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "engine/message/mailbox.h"

namespace qccl::engine {
namespace {

using wire::FrameHeader;
using wire::FrameKind;

bool is_message_frame(FrameKind kind) {
  return kind == FrameKind::message || kind == FrameKind::message_data || kind == FrameKind::message_grant;
}

// The header, or what the peer did. It is copied out before it is checked: the frame may lie in memory that a peer can
// write.
Result<FrameHeader> check_frame(const ReceivedFrame& frame) {
  const auto corrupt = [](std::string what) { return Failure(ErrorKind::corrupt_data, std::move(what)); };
  std::array<std::byte, wire::kHeaderBytes> copy;
  if (frame.bytes.size() < copy.size()) return corrupt("sent a frame shorter than its header");
  std::memcpy(copy.data(), frame.bytes.data(), copy.size());
  auto header = wire::decode_header(copy.data());
  if (!header.ok()) return corrupt("sent a bad frame: " + header.error().message);
  const ConstBytes payload = frame.payload();
  if (payload.size() != header->payload_bytes) {
    return corrupt(fmt::format("sent a frame of {} bytes that says {}", wire::kHeaderBytes + payload.size(),
                               wire::kHeaderBytes + header->payload_bytes));
  }
  if (header->payload_checksum != 0 && header->payload_checksum != wire::payload_checksum(payload)) {
    return corrupt("sent a payload that fails its checksum: the network or a machine damages data");
  }
  if (header->kind == FrameKind::last) return corrupt("sent the end of a connection where there is one alone");
  return header;
}

}  // namespace

FrameDispatcher::FrameDispatcher(EngineParts& parts, FailureHandler& failures, PeerFailures& peer_failures,
                                 MismatchDetector& mismatches, GroupShrinker& shrinker)
    : parts_(parts), failures_(failures), peer_failures_(peer_failures), mismatches_(mismatches), shrinker_(shrinker) {
  parts_.transport.set_placement(this);
}

FrameDispatcher::~FrameDispatcher() {
  parts_.transport.set_placement(nullptr);
  if (retried_) parts_.transport.release(*retried_);
}

bool FrameDispatcher::receive() {
  bool received = false;
  // Bounded, so that decoding and sending get a turn.
  for (int i = 0; i < 64; ++i) {
    const auto frame = retried_ ? std::exchange(retried_, std::nullopt) : parts_.transport.receive();
    if (!frame) return received;
    received = true;
    on_frame(*frame);
    if (retried_) return false;
  }
  return received;
}

void FrameDispatcher::on_frame(const ReceivedFrame& frame) {
  if (parts_.peers[frame.peer].lost) return parts_.transport.release(frame);
  const auto checked = check_frame(frame);
  if (!checked.ok()) {
    peer_failures_.give_up(frame.peer, checked.error().kind, checked.error().message);
    return parts_.transport.release(frame);
  }
  const FrameHeader& header = checked.value();
  parts_.peers.heard(frame.peer, parts_.now);
  parts_.frame_sender.eager().note_returned(frame.peer, header.eager_consumed);
  if (header.kind == FrameKind::heartbeat) return parts_.transport.release(frame);
  if (header.kind == FrameKind::goodbye || header.kind == FrameKind::given_up) {
    header.kind == FrameKind::goodbye ? peer_failures_.on_goodbye(frame.peer)
                                      : peer_failures_.on_given_up(frame.peer, frame.payload());
    return parts_.transport.release(frame);
  }
  if (Group* target = parts_.groups.find(header.group)) return on_group_frame(*target, header, frame);
  if (parts_.groups.was_closed(header.group)) {
    if (header.kind == FrameKind::membership) shrinker_.answer_for_closed(header.group, frame.peer, frame.payload());
    return parts_.frame_sender.consume(header, frame);
  }
  keep_orphan(header, frame);
}

// A frame that cannot be kept is the next one again.
void FrameDispatcher::keep_orphan(const FrameHeader& header, const ReceivedFrame& frame) {
  try {
    keep(parts_.groups.orphans(header.group), parts_.groups.orphan_frames(), header, frame);
    parts_.groups.note_orphan();
  } catch (const std::bad_alloc&) {
    retried_ = frame;
  }
}

void FrameDispatcher::keep(std::vector<StoredFrame>& where, std::size_t kept, const FrameHeader& header,
                           const ReceivedFrame& frame) {
  if (kept < kMaxStoredFrames) return where.push_back({header, frame});
  parts_.frame_sender.consume(header, frame);
  peer_failures_.give_up(frame.peer, ErrorKind::peer_lost,
                         fmt::format("was lost: sent more than {} frames ahead", kMaxStoredFrames));
}

void FrameDispatcher::replay_stored(Group& group, std::uint64_t sequence) {
  due_.clear();
  due_.reserve(group.stored.size());
  std::erase_if(group.stored, [&](const StoredFrame& stored) {
    if (stored.header.sequence > sequence) return false;
    due_.push_back(stored);
    return true;
  });
  for (const StoredFrame& stored : due_) on_group_frame(group, stored.header, stored.frame);
}

void FrameDispatcher::on_group_frame(Group& group, const FrameHeader& header, const ReceivedFrame& frame) {
  try {
    on_member_frame(group, header, frame);
  } catch (const std::bad_alloc&) {
    failures_.run_out(group, nullptr);
  }
}

void FrameDispatcher::on_member_frame(Group& group, const FrameHeader& header, const ReceivedFrame& frame) {
  if (group.group_rank(frame.peer).is_none()) {
    peer_failures_.give_up(frame.peer, ErrorKind::peer_lost,
                           fmt::format("was lost: sent a frame of group '{}', of which it is no member", group.name));
    return parts_.frame_sender.consume(header, frame);
  }
  if (header.kind == FrameKind::poison) {
    peer_failures_.on_poison(group, frame.peer, frame.payload());
    return parts_.frame_sender.consume(header, frame);
  }
  if (header.kind == FrameKind::membership) {
    shrinker_.on_frame(group, frame.peer, frame.payload());
    return parts_.frame_sender.consume(header, frame);
  }
  if (group.failure) return parts_.frame_sender.consume(header, frame);
  if (is_message_frame(header.kind)) return on_message_frame(group, header, frame);
  if (header.sequence >= group.next_sequence) {
    return keep(group.stored, group.stored.size() / static_cast<std::size_t>(group.world()), header, frame);
  }
  if (header.kind == FrameKind::fingerprint) {
    mismatches_.on_fingerprint(group, header, frame.peer, frame.payload());
    return parts_.frame_sender.consume(header, frame);
  }
  on_operation_frame(group, header, frame);
}

// Compares the frame with this rank's call of that number, then delivers it if the call is in flight.
void FrameDispatcher::on_operation_frame(Group& group, const FrameHeader& header, const ReceivedFrame& frame) {
  Operation* operation = parts_.operations.find(group, header.sequence);
  const PastCall* past = operation == nullptr ? group.past(header.sequence) : nullptr;
  const bool differs = operation != nullptr ? operation->fingerprint() != header.fingerprint
                                            : past != nullptr && past->fingerprint != header.fingerprint;
  if (differs) mismatches_.begin(group, header.sequence);
  if (differs || operation == nullptr) return parts_.frame_sender.consume(header, frame);
  deliver(*operation, group.group_rank(frame.peer), header, frame);
}

void FrameDispatcher::on_message_frame(Group& group, const FrameHeader& header, const ReceivedFrame& frame) {
  const GroupRank member = group.group_rank(frame.peer);
  Mailbox& box = mailbox_of(group, parts_.frame_sender);
  if (header.kind == FrameKind::message) {
    const Status status = box.on_message(member, header, frame);
    if (status.ok()) return;
    const ErrorInfo& error = status.error();
    return failures_.fail(group, failures_.group_error(group, error.kind, frame.peer, error.message));
  }
  Operation* const operation = header.kind == FrameKind::message_data
                                   ? static_cast<Operation*>(box.receiver(member, header.sequence))
                                   : box.sender(member, header.sequence);
  if (operation != nullptr) return deliver(*operation, member, header, frame);
  parts_.frame_sender.consume(header, frame);
  const auto what =
      fmt::format("rank {} sent a frame of message {}, which is not under way", frame.peer, header.sequence);
  failures_.fail(group, failures_.group_error(group, ErrorKind::corrupt_data, frame.peer, what));
}

// Only for a call in flight or a message under way. The whole frame is checked once it has arrived.
std::byte* FrameDispatcher::find_destination(WorldRank peer, ConstBytes bytes) {
  const auto decoded = wire::decode_header(bytes.data());
  if (!decoded.ok()) return nullptr;
  const FrameHeader& header = decoded.value();
  Group* const target = parts_.groups.find(header.group);
  if (target == nullptr || target->failure) return nullptr;
  const GroupRank member = target->group_rank(peer);
  if (member.is_none()) return nullptr;
  if (header.kind == FrameKind::message_data) {
    RecvOperation* const receive = target->mailbox ? target->mailbox->receiver(member, header.sequence) : nullptr;
    return receive != nullptr ? receive->find_destination(member, header) : nullptr;
  }
  if (header.kind != FrameKind::data) return nullptr;
  Operation* const operation = parts_.operations.find(*target, header.sequence);
  const bool is_its_own = operation != nullptr && operation->fingerprint() == header.fingerprint;
  return is_its_own ? operation->find_destination(member, header) : nullptr;
}

void FrameDispatcher::deliver(Operation& operation, GroupRank member, const FrameHeader& header,
                              const ReceivedFrame& frame) {
  const Status status = operation.on_frame(member, header, frame);
  const bool has_taken_over = header.kind == FrameKind::data || header.kind == FrameKind::message_data;
  if (!has_taken_over) parts_.frame_sender.consume(header, frame);
  if (status.ok()) return;
  failures_.fail(operation, status.error().kind, status.error().message);
}

}  // namespace qccl::engine
