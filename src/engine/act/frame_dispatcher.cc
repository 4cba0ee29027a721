#include "engine/act/frame_dispatcher.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "engine/run/mailbox.h"

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

FrameDispatcher::FrameDispatcher(const RoundClock& clock, GroupTable& groups, OperationTable& operations,
                                 PeerMonitor& peers, FrameSender& frame_sender, FailureHandler& failures,
                                 PeerFailures& peer_failures, MismatchDetector& mismatches, GroupShrinker& shrinker,
                                 StatusExchange& status)
    : transport_(frame_sender.transport()),
      clock_(clock),
      groups_(groups),
      operations_(operations),
      peers_(peers),
      frame_sender_(frame_sender),
      failures_(failures),
      peer_failures_(peer_failures),
      mismatches_(mismatches),
      shrinker_(shrinker),
      status_(status) {
  transport_.set_placement(this);
}

FrameDispatcher::~FrameDispatcher() { transport_.set_placement(nullptr); }

bool FrameDispatcher::receive() {
  bool received = false;
  // Bounded, so that decoding and sending get a turn.
  for (int i = 0; i < 64; ++i) {
    if (retried_) {
      on_frame(std::exchange(retried_, {}));
    } else {
      const auto next = transport_.receive();
      if (!next) return received;
      if (Frame frame = check(*next)) on_frame(std::move(frame));
    }
    received = true;
    if (retried_) return false;
  }
  return received;
}

Frame FrameDispatcher::check(const ReceivedFrame& received) {
  if (peers_[received.peer].lost) {
    transport_.release(received);
    return {};
  }
  const auto header = check_frame(received);
  if (!header.ok()) {
    peer_failures_.give_up(received.peer, header.error().kind, header.error().message);
    transport_.release(received);
    return {};
  }
  peers_.heard(received.peer, clock_.now());
  frame_sender_.eager().note_returned(received.peer, header.value().eager_consumed);
  return Frame(frame_sender_, header.value(), received);
}

void FrameDispatcher::on_frame(Frame&& frame) {
  const FrameHeader& header = frame.header();
  if (header.kind == FrameKind::heartbeat) return;
  if (header.kind == FrameKind::status_query) return status_.on_query(frame.peer());
  if (header.kind == FrameKind::status) return status_.on_status(frame.peer(), frame.payload());
  if (header.kind == FrameKind::goodbye) return peer_failures_.on_goodbye(frame.peer());
  if (header.kind == FrameKind::given_up) return peer_failures_.on_given_up(frame.peer(), frame.payload());
  if (Group* const target = groups_.find(header.group)) return on_group_frame(*target, std::move(frame));
  if (!groups_.was_closed(header.group)) return keep_orphan(std::move(frame));
  if (header.kind == FrameKind::member_list) shrinker_.answer_for_closed(header.group, frame.peer(), frame.payload());
}

// A frame that cannot be kept is the next one again.
void FrameDispatcher::keep_orphan(Frame&& frame) {
  try {
    keep(groups_.orphans(frame.header().group), groups_.orphan_frames(), std::move(frame));
    groups_.note_orphan();
  } catch (const std::bad_alloc&) {
    retried_ = std::move(frame);
  }
}

void FrameDispatcher::keep(std::vector<Frame>& where, std::size_t kept, Frame&& frame) {
  if (kept < kMaxStoredFrames) return where.push_back(std::move(frame));
  peer_failures_.give_up(frame.peer(), ErrorKind::peer_lost,
                         fmt::format("was lost: sent more than {} frames ahead", kMaxStoredFrames));
}

void FrameDispatcher::replay_stored(Group& group, std::uint64_t sequence) {
  due_.clear();
  due_.reserve(group.stored.size());
  auto later = group.stored.begin();
  for (Frame& frame : group.stored) {
    if (frame.header().sequence > sequence) {
      *later++ = std::move(frame);
    } else {
      due_.push_back(std::move(frame));
    }
  }
  group.stored.erase(later, group.stored.end());
  for (Frame& frame : due_) on_group_frame(group, std::move(frame));
  due_.clear();
}

void FrameDispatcher::on_group_frame(Group& group, Frame&& frame) {
  try {
    on_member_frame(group, std::move(frame));
  } catch (const std::bad_alloc&) {
    failures_.run_out(group, nullptr);
  }
}

void FrameDispatcher::on_member_frame(Group& group, Frame&& frame) {
  const FrameHeader& header = frame.header();
  if (group.group_rank(frame.peer()).is_none()) {
    return peer_failures_.give_up(
        frame.peer(), ErrorKind::peer_lost,
        fmt::format("was lost: sent a frame of group '{}', of which it is no member", group.name));
  }
  if (header.kind == FrameKind::poison) return peer_failures_.on_poison(group, frame.peer(), frame.payload());
  if (header.kind == FrameKind::member_list) return shrinker_.on_frame(group, frame.peer(), frame.payload());
  if (group.failure) return;
  if (is_message_frame(header.kind)) return on_message_frame(group, std::move(frame));
  if (header.sequence >= group.next_sequence) {
    return keep(group.stored, group.stored.size() / static_cast<std::size_t>(group.world()), std::move(frame));
  }
  if (header.kind == FrameKind::fingerprint) {
    return mismatches_.on_fingerprint(group, header, frame.peer(), frame.payload());
  }
  on_operation_frame(group, std::move(frame));
}

// Compares the frame with this rank's call of that number, then delivers it if the call is in flight.
void FrameDispatcher::on_operation_frame(Group& group, Frame&& frame) {
  const FrameHeader& header = frame.header();
  Operation* operation = operations_.find(group, header.sequence);
  const PastCall* past = operation == nullptr ? group.past(header.sequence) : nullptr;
  const bool differs = operation != nullptr ? operation->fingerprint() != header.fingerprint
                                            : past != nullptr && past->fingerprint != header.fingerprint;
  if (differs) return mismatches_.begin(group, header.sequence);
  if (operation != nullptr) deliver(*operation, group.group_rank(frame.peer()), std::move(frame));
}

void FrameDispatcher::on_message_frame(Group& group, Frame&& frame) {
  const FrameHeader header = frame.header();
  const WorldRank peer = frame.peer();
  const GroupRank member = group.group_rank(peer);
  Mailbox& box = mailbox_of(group);
  if (header.kind == FrameKind::message) {
    const Status status = box.on_message(member, std::move(frame));
    if (status.ok()) return;
    const ErrorInfo& error = status.error();
    return failures_.fail(group, failures_.group_error(group, error.kind, peer, error.message));
  }
  Operation* const operation = header.kind == FrameKind::message_data
                                   ? static_cast<Operation*>(box.receiver(member, header.sequence))
                                   : box.sender(member, header.sequence);
  if (operation != nullptr) return deliver(*operation, member, std::move(frame));
  const auto what = fmt::format("rank {} sent a frame of message {}, which is not under way", peer, header.sequence);
  failures_.fail(group, failures_.group_error(group, ErrorKind::corrupt_data, peer, what));
}

// Only for a call in flight or a message under way. The whole frame is checked once it has arrived.
std::byte* FrameDispatcher::find_destination(WorldRank peer, ConstBytes bytes) {
  const auto decoded = wire::decode_header(bytes.data());
  if (!decoded.ok()) return nullptr;
  const FrameHeader& header = decoded.value();
  Group* const target = groups_.find(header.group);
  if (target == nullptr || target->failure) return nullptr;
  const GroupRank member = target->group_rank(peer);
  if (member.is_none()) return nullptr;
  if (header.kind == FrameKind::message_data) {
    Mailbox* const box = find_mailbox(*target);
    RecvOperation* const receive = box != nullptr ? box->receiver(member, header.sequence) : nullptr;
    return receive != nullptr ? receive->find_destination(member, header) : nullptr;
  }
  if (header.kind != FrameKind::data) return nullptr;
  Operation* const operation = operations_.find(*target, header.sequence);
  const bool is_its_own = operation != nullptr && operation->fingerprint() == header.fingerprint;
  return is_its_own ? operation->find_destination(member, header) : nullptr;
}

void FrameDispatcher::deliver(Operation& operation, GroupRank member, Frame&& frame) {
  const Status status = operation.on_frame(member, std::move(frame));
  if (!status.ok()) failures_.fail(operation, status.error().kind, status.error().message);
}

}  // namespace qccl::engine
