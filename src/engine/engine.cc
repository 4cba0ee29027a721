#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/collective/cell_operation.h"
#include "engine/collective/mapped_operation.h"
#include "engine/collective/plan_operation.h"
#include "engine/compute/host_compute.h"
#include "engine/message/mailbox.h"

namespace qccl::engine {

using wire::FrameHeader;
using wire::FrameKind;

Engine::Engine(Transport& transport, const Clock& clock, EngineOptions options)
    : transport_(transport),
      clock_(clock),
      options_(options),
      frame_sender_(transport, options.world, options.checksum),
      peers_({options.rank, options.world, options.heartbeat_interval, options.peer_timeout}, clock.now()),
      control_(peers_, frame_sender_, options.rank, options.world),
      recorder_(options.log, clock, frame_sender_) {
  now_ = clock.now();
  const auto reason = [&](ErrorKind kind, int peer, const char* what) {
    return std::make_shared<const ErrorInfo>(ErrorInfo{.kind = kind,
                                                       .message = fmt::format("QCCL rank {}: {}", options.rank, what),
                                                       .rank = options.rank,
                                                       .peer = peer});
  };
  no_memory_ = reason(ErrorKind::resource_exhausted, options.rank, kNoMemory);
  closed_ = reason(ErrorKind::aborted, -1, "the group was closed");
  refused_.reserve(kMaxRefusals);
  transport_.set_placement(this);
}

Engine::~Engine() {
  transport_.set_placement(nullptr);
  transport_.withdraw();
  operations_.clear();
  groups_.visit_stored([this](const StoredFrame& stored) { transport_.release(stored.frame); });
  for (auto& [id, group] : groups_) {
    if (group->mailbox != nullptr) group->mailbox->drop_frames();
  }
  if (recorded_) transport_.release(*recorded_);
}

namespace {

bool is_message_frame(FrameKind kind) {
  return kind == FrameKind::message || kind == FrameKind::message_data || kind == FrameKind::message_grant;
}

}  // namespace

// ---- posting

void Engine::refuse(CallArguments& arguments, ErrorInfo failure) {
  if (failure.operation.empty()) failure.operation = operation_name(arguments);
  failure.rank = options_.rank;
  auto shared = std::make_shared<const ErrorInfo>(std::move(failure));
  ended_.push(std::move(arguments.work), std::move(shared));
}

// A call that there is no memory for fails its group: it has a place among the calls of all members.
void Engine::post(CallArguments&& arguments) {
  const auto work = arguments.work;
  Group* const target = group(arguments.group);
  std::shared_ptr<internal::FeedbackState> claimed;
  const std::size_t before = operations_.size();
  try {
    begin(target, std::move(arguments), claimed);
  } catch (const std::bad_alloc&) {
    if (target != nullptr) run_out(*target, nullptr);
    if (operations_.size() > before) return;  // ends with the group
    if (claimed != nullptr) claimed->end(false);
    ended_.push(work, target != nullptr ? target->failure : no_memory_);
  }
}

void Engine::begin(Group* target, CallArguments&& arguments, std::shared_ptr<internal::FeedbackState>& claimed) {
  if (target == nullptr) {
    return refuse(arguments, {.kind = ErrorKind::misuse, .message = "QCCL: this communicator is closed"});
  }
  if (target->failure) return refuse(arguments, *target->failure);
  if (arguments.message) return post_message(*target, std::move(arguments));
  if (arguments.feedback != nullptr) {
    if (!claim_feedback(arguments)) return;
    claimed = arguments.feedback;
  }
  if (arguments.plan->codec() != nullptr && !arguments.draw_counter)
    arguments.draw_counter = target->compressed_calls++;
  const std::uint64_t sequence = target->next_sequence++;
  operations_.push_back(make_operation(*target, sequence, std::move(arguments)));
  Operation& posted = *operations_.back();
  const std::uint64_t admission_bytes = posted.admission_bytes();
  posted.defer(admission_bytes > 0 && !target->admission.post(admission_bytes));
  note_posted(posted);
  target->remember(sequence, posted.plan());
  next_deadline_ = std::min(next_deadline_, posted.deadline());
  if (!target->stored.empty()) replay_stored(*target, sequence);
  if (!target->failure) look_for_absent(posted);
}

// Its number is known, to its work and to the log.
void Engine::note_posted(Operation& posted) {
  if (posted.work() != nullptr) posted.work()->set_number(posted.sequence());
  recorder_.begin(posted);
}

// Else refuses the call.
bool Engine::claim_feedback(CallArguments& arguments) {
  if (const auto counter = arguments.feedback->claim()) {
    arguments.draw_counter = *counter;
    return true;
  }
  refuse(arguments, {.kind = ErrorKind::misuse, .message = "QCCL: " + arguments.feedback->unusable_reason()});
  return false;
}

std::unique_ptr<Operation> Engine::make_operation(Group& group, std::uint64_t sequence, CallArguments&& arguments) {
  if (reduces_on_board(arguments)) {
    has_unstarted_ = true;
    const std::uint64_t first =
        std::exchange(group.next_board_sequence, group.next_board_sequence + MappedOperation::kRounds);
    return reuse_or_make<MappedOperation>(
        group, arguments,
        [&](MappedOperation& retired) { retired.restart(sequence, std::move(arguments), kForever, first); },
        [&] {
          return std::make_unique<MappedOperation>(group, sequence, std::move(arguments), kForever, frame_sender_,
                                                   pool_, first);
        });
  }
  if (arguments.plan->call().board) {
    has_unstarted_ = true;
    const std::uint64_t number = group.next_board_sequence++;
    return make_cell_operation(group, sequence, std::move(arguments), number);
  }
  now_ = clock_.now();
  return reuse_or_make<PlanOperation>(
      group, arguments, [&](PlanOperation& retired) { retired.restart(sequence, std::move(arguments), now_); },
      [&] {
        auto compute = make_compute(group, *arguments.plan);
        return std::make_unique<PlanOperation>(group, sequence, std::move(arguments), now_, frame_sender_, pool_,
                                               std::move(compute));
      });
}

std::unique_ptr<Compute> Engine::make_compute(const Group& group, const ExecutablePlan& plan) {
  const ComputeContext context{&plan, group.world(), group.rank, &pool_, options_.seed};
  if (options_.make_compute) return options_.make_compute(context);
  return std::make_unique<HostCompute>(context);
}

void Engine::replay_stored(Group& group, std::uint64_t sequence) {
  due_.clear();
  due_.reserve(group.stored.size());
  std::erase_if(group.stored, [&](const StoredFrame& stored) {
    if (stored.header.sequence > sequence) return false;
    due_.push_back(stored);
    return true;
  });
  for (const StoredFrame& stored : due_) on_group_frame(group, stored.header, stored.frame);
}

// ---- frames

bool Engine::receive_frames() {
  bool received = false;
  // Bounded, so that decoding and sending get their turn.
  for (int i = 0; i < 64; ++i) {
    const auto frame = recorded_ ? std::exchange(recorded_, std::nullopt) : transport_.receive();
    if (!frame) return received;
    received = true;
    on_frame(*frame);
    if (recorded_) return false;
  }
  return received;
}

bool Engine::is_intact(const FrameHeader& header, const ReceivedFrame& frame) {
  const ConstBytes payload = frame.payload();
  if (payload.size() != header.payload_bytes) {
    give_up(frame.peer, ErrorKind::corrupt_data,
            fmt::format("sent a frame of {} bytes that says {}", wire::kHeaderBytes + payload.size(),
                        wire::kHeaderBytes + header.payload_bytes));
    return false;
  }
  if (header.payload_checksum != 0 && header.payload_checksum != wire::payload_checksum(payload)) {
    give_up(frame.peer, ErrorKind::corrupt_data,
            "sent a payload that fails its checksum: the network or a machine damages data");
    return false;
  }
  return true;
}

// The header is copied out before it is checked: the frame may lie in memory that a peer can write.
void Engine::on_frame(const ReceivedFrame& frame) {
  if (peers_[frame.peer].lost) return transport_.release(frame);
  std::array<std::byte, wire::kHeaderBytes> copy;
  if (frame.bytes.size() < copy.size()) {
    give_up(frame.peer, ErrorKind::corrupt_data, "sent a frame shorter than its header");
    return transport_.release(frame);
  }
  std::memcpy(copy.data(), frame.bytes.data(), copy.size());
  const auto decoded = wire::decode_header(copy.data());
  if (!decoded.ok()) {
    give_up(frame.peer, ErrorKind::corrupt_data, "sent a bad frame: " + decoded.error().message);
    return transport_.release(frame);
  }
  const FrameHeader& header = decoded.value();
  if (!is_intact(header, frame)) return transport_.release(frame);
  peers_.heard(frame.peer, now_);
  frame_sender_.note_eager_returned(frame.peer, header.eager_consumed);
  if (header.kind == FrameKind::heartbeat) return transport_.release(frame);
  if (header.kind == FrameKind::goodbye || header.kind == FrameKind::given_up) {
    header.kind == FrameKind::goodbye ? on_goodbye(frame.peer) : on_given_up(frame.peer, frame.payload());
    return transport_.release(frame);
  }
  if (Group* target = group(header.group)) return on_group_frame(*target, header, frame);
  if (groups_.was_closed(header.group)) return frame_sender_.consume(header, frame);
  keep_orphan(header, frame);
}

// What can't be kept stays the next frame.
void Engine::keep_orphan(const FrameHeader& header, const ReceivedFrame& frame) {
  try {
    keep(groups_.orphans(header.group), groups_.orphan_frames(), header, frame);
    groups_.note_orphan();
  } catch (const std::bad_alloc&) {
    recorded_ = frame;
  }
}

void Engine::keep(std::vector<StoredFrame>& where, std::size_t kept, const FrameHeader& header,
                  const ReceivedFrame& frame) {
  if (kept < kMaxStoredFrames) return where.push_back({frame.peer, header, frame});
  frame_sender_.consume(header, frame);
  give_up(frame.peer, ErrorKind::peer_lost, fmt::format("was lost: sent more than {} frames ahead", kMaxStoredFrames));
}

void Engine::discard_all(std::vector<StoredFrame>& stored) {
  for (const StoredFrame& late : std::exchange(stored, {})) frame_sender_.consume(late.header, late.frame);
}

void Engine::on_group_frame(Group& group, const FrameHeader& header, const ReceivedFrame& frame) {
  try {
    on_member_frame(group, header, frame);
  } catch (const std::bad_alloc&) {
    run_out(group, nullptr);
  }
}

void Engine::on_member_frame(Group& group, const FrameHeader& header, const ReceivedFrame& frame) {
  if (group.index_of[static_cast<std::size_t>(frame.peer)] < 0) {
    give_up(frame.peer, ErrorKind::peer_lost,
            fmt::format("was lost: sent a frame of group '{}', of which it is no member", group.name));
    return frame_sender_.consume(header, frame);
  }
  if (header.kind == FrameKind::poison) {
    on_poison(group, frame.peer, frame.payload());
    return frame_sender_.consume(header, frame);
  }
  if (group.failure) return frame_sender_.consume(header, frame);
  if (is_message_frame(header.kind)) return on_message_frame(group, header, frame);
  if (header.sequence >= group.next_sequence) {
    return keep(group.stored, group.stored.size() / static_cast<std::size_t>(group.world()), header, frame);
  }
  if (header.kind == FrameKind::fingerprint) {
    on_fingerprint(group, header, frame.peer, frame.payload());
    return frame_sender_.consume(header, frame);
  }
  on_operation_frame(group, header, frame);
}

// A frame of a call that this rank has made: compared with it, then delivered if it is in flight.
void Engine::on_operation_frame(Group& group, const FrameHeader& header, const ReceivedFrame& frame) {
  Operation* operation = active(group, header.sequence);
  const PastCall* past = operation == nullptr ? group.past(header.sequence) : nullptr;
  const bool differs = operation != nullptr ? operation->fingerprint() != header.fingerprint
                                            : past != nullptr && past->fingerprint != header.fingerprint;
  if (differs) begin_mismatch(group, header.sequence);
  if (differs || operation == nullptr) return frame_sender_.consume(header, frame);
  deliver(*operation, group.index_of[static_cast<std::size_t>(frame.peer)], header, frame);
}

// Of a call in flight, or of a message under way; its frame is judged in whole when it is here.
std::byte* Engine::place(int peer, ConstBytes bytes) {
  const auto decoded = wire::decode_header(bytes.data());
  if (!decoded.ok()) return nullptr;
  const FrameHeader& header = decoded.value();
  Group* const target = group(header.group);
  const int member = target == nullptr ? -1 : target->index_of[static_cast<std::size_t>(peer)];
  if (member < 0 || target->failure) return nullptr;
  if (header.kind == FrameKind::message_data) {
    RecvOperation* const receive = target->mailbox ? target->mailbox->receiver(member, header.sequence) : nullptr;
    return receive != nullptr ? receive->place(member, header) : nullptr;
  }
  if (header.kind != FrameKind::data) return nullptr;
  Operation* const operation = active(*target, header.sequence);
  const bool is_its_own = operation != nullptr && operation->fingerprint() == header.fingerprint;
  return is_its_own ? operation->place(member, header) : nullptr;
}

void Engine::deliver(Operation& operation, int member, const FrameHeader& header, const ReceivedFrame& frame) {
  Status status;
  if (header.kind == FrameKind::data || header.kind == FrameKind::message_data) {
    status = operation.on_data(member, header, frame);
  } else {
    status =
        header.kind == FrameKind::request ? operation.on_request(member, header) : operation.on_grant(member, header);
    frame_sender_.consume(header, frame);
  }
  if (status.ok()) return;
  set_failure(*group(operation.group().id), failure_of(operation, status.error().kind, status.error().message), true);
}

Operation* Engine::active(const Group& group, std::uint64_t sequence) {
  for (const auto& operation : operations_) {
    if (operation == nullptr || operation->is_message()) continue;
    if (operation->sequence() == sequence && &operation->group() == &group) {
      return operation.get();
    }
  }
  return nullptr;
}

std::optional<Engine::OwnCall> Engine::own_call(const Group& group, std::uint64_t sequence) {
  if (const Operation* operation = active(group, sequence))
    return OwnCall{operation->fingerprint(), operation->plan().shared_call()};
  if (const PastCall* past = group.past(sequence)) return OwnCall{past->fingerprint, past->call};
  return std::nullopt;
}

// ---- progress

bool Engine::progress() {
  try {
    return move();
  } catch (const std::bad_alloc&) {
    abandon_all_groups();
    return false;
  }
}

bool Engine::move() {
  now_ = clock_.now();
  frame_sender_.set_now(now_);
  if (has_unstarted_) start_operations();
  bool moved = transport_.progress();
  moved |= receive_frames();
  moved |= look_for_losses();
  moved |= advance_operations();
  moved |= frame_sender_.send_reports();
  if (!has_no_notes()) moved |= control_.send();
  check_timers();
  sweep_failed_groups();
  if (!quiet_waiters_.empty()) notify_quiet_groups();
  return moved;
}

// Reading the clock takes a tenth of a small operation, which is mostly done before it gets here.
void Engine::start_operations() {
  has_unstarted_ = false;
  for (const auto& operation : operations_) {
    if (operation->deadline() != kForever) continue;
    operation->start(now_);
    next_deadline_ = std::min(next_deadline_, operation->deadline());
  }
}

bool Engine::advance_operations() {
  bool moved = false;
  bool ended = false;
  for (auto& operation : operations_) {
    if (operation->group().failure || operation->waits_for_turn()) continue;
    try {
      moved |= advance_operation(operation);
    } catch (const std::bad_alloc&) {
      run_out(*group(operation->group().id), operation.get());
    }
    ended |= operation == nullptr;
  }
  if (ended) std::erase(operations_, nullptr);
  return moved || ended;
}

bool Engine::advance_operation(std::unique_ptr<Operation>& operation) {
  auto advanced = operation->log_notes().is_wanted ? recorder_.advance(*operation) : operation->advance();
  if (!advanced.ok()) {
    set_failure(*group(operation->group().id), failure_of(*operation, advanced.error().kind, advanced.error().message),
                true);
    return false;
  }
  if (operation->has_differing_call()) begin_mismatch(*group(operation->group().id), operation->sequence());
  if (operation->finished()) {
    end_turn(*operation);
    complete(*operation, nullptr);
    retired_.put(std::move(operation));
  }
  return *advanced;
}

// Lets those begin that waited for it.
void Engine::end_turn(const Operation& ended) {
  const std::uint64_t bytes = ended.admission_bytes();
  if (bytes == 0) return;
  AdmissionControl& turns = group(ended.group().id)->admission;
  turns.end(bytes);
  if (!turns.any_waits()) return;
  for (const auto& operation : operations_) {
    if (operation == nullptr || &operation->group() != &ended.group() || !operation->waits_for_turn()) continue;
    if (!turns.begin_next(operation->admission_bytes())) return;
    operation->defer(false);
  }
}

// Takes no memory but for the log.
void Engine::complete(Operation& operation, internal::SharedFailure failure) {
  if (operation.awaits_placed()) withdraw_placed();
  if (operation.log_notes().is_wanted) recorder_.end(operation, failure.get());
  ended_.push(operation.work(), std::move(failure));
}

void Engine::set_failure(Group& group, ErrorInfo failure, bool tell_peers) {
  if (group.failure) return;
  group.failure = std::make_shared<const ErrorInfo>(std::move(failure));
  group.is_untold = tell_peers;
  sweep_needed_ = true;
  tell_members(group);
}

// Later, if there is no memory for it now.
void Engine::tell_members(Group& group) {
  if (!group.is_untold) return;
  try {
    poison_peers(group, fmt::format("{}\n{}\n{}", static_cast<int>(group.failure->kind), group.failure->peer,
                                    group.failure->message.substr(0, kMaxPoisonText)));
    group.is_untold = false;
  } catch (const std::bad_alloc&) {
    sweep_needed_ = true;
  }
}

void Engine::poison_peers(const Group& group, std::string_view text) {
  for (const int rank : group.ranks) {
    if (rank == options_.rank || peers_[rank].lost) continue;
    control_.queue(rank, {.kind = FrameKind::poison, .group = group.id}, text);
  }
}

void Engine::sweep_failed_groups() {
  if (!sweep_needed_) return;
  sweep_needed_ = false;
  for (auto& [id, group] : groups_) {
    if (group->failure) continue;
    group->failure = failure_of_parent(*group);
    group->is_untold = group->failure != nullptr;
  }
  for (auto& operation : operations_) {
    if (!operation->group().failure) continue;
    operation->drop_frames();
    complete(*operation, operation->finished() ? nullptr : operation->group().failure);
    operation.reset();
  }
  std::erase(operations_, nullptr);
  for (auto& [id, group] : groups_) {
    if (!group->failure) continue;
    discard_all(group->stored);
    if (group->mailbox != nullptr) group->mailbox->drop_frames();
    tell_members(*group);
  }
  tell_refusals();
}

void Engine::fail_group(std::uint64_t id, ErrorInfo failure) {
  Group* target = group(id);
  if (target == nullptr) return;
  failure.rank = options_.rank;
  set_failure(*target, std::move(failure), true);
  sweep_failed_groups();
  control_.send();
}

void Engine::shut_down(const ErrorInfo& reason) {
  for (auto& [id, group] : groups_) set_failure(*group, reason, false);
  sweep_failed_groups();
}

// ---- errors

ErrorInfo Engine::group_error(const Group& group, ErrorKind kind, int peer, const std::string& what) const {
  ErrorInfo info;
  info.kind = kind;
  info.message = fmt::format("QCCL rank {}, group '{}': {}", options_.rank, group.name, what);
  info.rank = options_.rank;
  info.peer = peer;
  return info;
}

ErrorInfo Engine::failure_of(const Operation& operation, ErrorKind kind, const std::string& what) const {
  const Waiting waiting = operation.waiting();
  const Group& group = operation.group();
  ErrorInfo info = group_error(group, kind, waiting.peers.empty() ? -1 : group.world_rank(waiting.peers.front()),
                               fmt::format("{} #{}: {}", operation.describe(), operation.sequence(), what));
  info.operation = operation.name();
  info.sequence = operation.sequence();
  info.received_bytes = waiting.received_bytes;
  info.expected_bytes = waiting.expected_bytes;
  return info;
}

}  // namespace qccl::engine
