// The part of Engine that deals with messages: send and recv.
#include <fmt/format.h>

#include "engine/engine.h"
#include "engine/message/mailbox.h"

namespace qccl::engine {

using wire::FrameHeader;
using wire::FrameKind;

Mailbox& Engine::mailbox(Group& group) {
  if (group.mailbox == nullptr) group.mailbox = std::make_unique<Mailbox>(group, frame_sender_);
  return *group.mailbox;
}

void Engine::post_message(Group& group, CallArguments&& arguments) {
  now_ = clock_.now();
  Mailbox& box = mailbox(group);
  const std::uint64_t number = box.next_post();
  Status matched;
  if (arguments.message->incoming) {
    auto receive = reuse_or_make<RecvOperation>(
        group, arguments, [&](RecvOperation& retired) { retired.restart(number, std::move(arguments), now_); },
        [&] {
          return std::make_unique<RecvOperation>(group, number, std::move(arguments), now_, frame_sender_, pool_);
        });
    matched = box.look_for_arrival(*receive);
    operations_.push_back(std::move(receive));
  } else {
    operations_.push_back(reuse_or_make<SendOperation>(
        group, arguments, [&](SendOperation& retired) { retired.restart(number, std::move(arguments), now_); },
        [&] {
          return std::make_unique<SendOperation>(group, number, std::move(arguments), now_, frame_sender_, pool_,
                                                 options_.slice_bytes);
        }));
  }
  Operation& posted = *operations_.back();
  note_posted(posted);
  next_deadline_ = std::min(next_deadline_, posted.deadline());
  if (!matched.ok()) {
    return set_failure(group, failure_of(posted, matched.error().kind, matched.error().message), true);
  }
  look_for_absent(posted);
}

void Engine::on_message_frame(Group& group, const FrameHeader& header, const ReceivedFrame& frame) {
  const int member = group.index_of[static_cast<std::size_t>(frame.peer)];
  Mailbox& box = mailbox(group);
  if (header.kind == FrameKind::message) {
    const Status status = box.on_message(member, header, frame);
    if (status.ok()) return;
    return set_failure(group, group_error(group, status.error().kind, frame.peer, status.error().message), true);
  }
  Operation* operation = header.kind == FrameKind::message_data
                             ? static_cast<Operation*>(box.receiver(member, header.sequence))
                             : box.sender(member, header.sequence);
  if (operation != nullptr) return deliver(*operation, member, header, frame);
  frame_sender_.consume(header, frame);
  set_failure(group,
              group_error(group, ErrorKind::corrupt_data, frame.peer,
                          fmt::format("rank {} sent a frame of message {}, which is not under way", frame.peer,
                                      header.sequence)),
              true);
}

}  // namespace qccl::engine
