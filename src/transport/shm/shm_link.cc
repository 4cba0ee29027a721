#include "transport/shm/shm_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>
#include <vector>

#include "os/net/socket.h"
#include "transport/shm/area.h"
#include "transport/shm/layout.h"
#include "transport/shm/link_message.h"

namespace qccl {
namespace {

using shm::kLinkMessageBytes;
using shm::LinkMessage;
using shm::LinkMessageKind;

// At 16 slots for 8 ranks a process shares at most 2 x 8 x 16 large slots with its peers. With more ranks the product
// stays the same, down to the minimum of 4 slots.
std::uint32_t large_slots_for(int local_ranks) {
  const auto ranks = static_cast<std::uint32_t>(std::max(local_ranks, 1));
  return std::clamp(8 * shm::kMaxLargeSlots / ranks, shm::kMinLargeSlots, shm::kMaxLargeSlots);
}

std::shared_ptr<os::Mapping> share(os::Mapping mapping) { return std::make_shared<os::Mapping>(std::move(mapping)); }

Status furnish(ShmHome& home) {
  auto doorbell = os::create_eventfd();
  if (!doorbell) return doorbell.failure();
  auto area = os::create_shared_memory("qccl-area", sizeof(shm::Area));
  if (!area) return area.failure();
  auto heap = os::create_shared_heap("qccl-heap", shm::kHeapBytes);
  if (!heap) return heap.failure();
  home.doorbell = std::move(*doorbell);
  home.area_fd = std::move(area->fd);
  home.area = share(std::move(area->mapping));
  home.heap = std::make_shared<os::SharedHeapFile>(std::move(*heap));
  return {};
}

// One side of the exchange in link_message.h.
class Conversation {
 public:
  Conversation(os::Fd socket, const ShmHome& home, int peer, TimePoint deadline, const Clock& clock)
      : home_(home), deadline_(deadline), clock_(clock) {
    link_.peer = peer;
    link_.large_slots = home.large_slots;
    link_.socket = std::move(socket);
  }

  Result<ShmLink> run() {
    auto done = home_.rank < link_.peer ? offer() : accept();
    if (!done) return explain(done.failure());
    return std::move(link_);
  }

 private:
  Status offer();
  Status accept();
  Status map_pair(const os::Fd& fd);
  Status take_over(os::Fd doorbell, const os::Fd& area, os::SharedHeapFile heap);
  Status say(LinkMessageKind kind, std::initializer_list<int> descriptors = {});
  Result<LinkMessage> hear(LinkMessageKind kind, std::size_t descriptors);
  Status read_message(std::byte* target);
  Failure refuse(Failure failure);
  Failure explain(Failure failure) const;

  const ShmHome& home_;
  const TimePoint deadline_;
  const Clock& clock_;
  ShmLink link_;
  std::vector<os::Fd> received_;  // descriptors of the last message
};

Status Conversation::offer() {
  if (home_.unsupported_reason) return refuse(Failure(*home_.unsupported_reason));
  auto pair = os::create_shared_memory("qccl-pair", shm::pair_bytes(link_.large_slots));
  if (!pair) return refuse(pair.failure());
  link_.pair = share(std::move(pair->mapping));
  QCCL_TRY(
      say(LinkMessageKind::offer, {pair->fd.get(), home_.doorbell.get(), home_.area_fd.get(), home_.heap->fd.get()}));
  auto answer = hear(LinkMessageKind::answer, 3);
  if (!answer) return answer.failure();
  if (auto taken = take_over(std::move(received_[0]), received_[1], {std::move(received_[2]), answer->heap_bytes});
      !taken)
    return refuse(taken.failure());
  return say(LinkMessageKind::accepted);
}

Status Conversation::accept() {
  auto offered = hear(LinkMessageKind::offer, 4);
  if (!offered) return offered.failure();
  if (home_.unsupported_reason) return refuse(Failure(*home_.unsupported_reason));
  link_.large_slots = offered->large_slots;
  if (auto mapped = map_pair(received_[0]); !mapped) return refuse(mapped.failure());
  if (auto taken = take_over(std::move(received_[1]), received_[2], {std::move(received_[3]), offered->heap_bytes});
      !taken)
    return refuse(taken.failure());
  QCCL_TRY(say(LinkMessageKind::answer, {home_.doorbell.get(), home_.area_fd.get(), home_.heap->fd.get()}));
  QCCL_TRY(hear(LinkMessageKind::accepted, 0));
  return {};
}

Status Conversation::map_pair(const os::Fd& fd) {
  auto mapping = os::map_shared_memory(fd, shm::pair_bytes(link_.large_slots));
  if (!mapping) return mapping.failure();
  link_.pair = share(std::move(*mapping));
  return {};
}

Status Conversation::take_over(os::Fd doorbell, const os::Fd& area, os::SharedHeapFile heap) {
  auto mapping = os::map_shared_memory(area, sizeof(shm::Area));
  if (!mapping) return mapping.failure();
  QCCL_TRY(os::check_shared_heap(heap.fd, heap.bytes));
  link_.area = share(std::move(*mapping));
  link_.heap = std::make_shared<os::SharedHeapFile>(std::move(heap));
  link_.doorbell = std::move(doorbell);
  return {};
}

// ---- messages

// The socket's buffer holds more than either side ever sends, so this does not block.
Status Conversation::say(LinkMessageKind kind, std::initializer_list<int> descriptors) {
  std::array<std::byte, kLinkMessageBytes> bytes;
  shm::encode_link_message({kind, home_.rank, link_.peer, link_.large_slots, {}, home_.heap->bytes}, bytes.data());
  const auto sent = os::send_descriptors(link_.socket.get(), bytes, {descriptors.begin(), descriptors.size()});
  if (sent.bytes == bytes.size()) return {};
  return Failure(ErrorKind::peer_lost, sent.lost() ? os::describe(sent) : "the socket took no message");
}

Status Conversation::read_message(std::byte* target) {
  received_.clear();
  for (std::size_t filled = 0; filled < kLinkMessageBytes;) {
    auto readable = os::wait_ready(link_.socket, os::Direction::read, deadline_, clock_);
    if (!readable) return readable.failure();
    if (!*readable) return Failure(ErrorKind::deadline_exceeded, "no answer by the deadline");
    const auto got = os::recv_descriptors(link_.socket.get(), {target + filled, kLinkMessageBytes - filled}, received_);
    if (got.lost()) return Failure(ErrorKind::peer_lost, os::describe(got));
    filled += got.bytes;
  }
  return {};
}

Result<LinkMessage> Conversation::hear(LinkMessageKind kind, std::size_t descriptors) {
  std::array<std::byte, kLinkMessageBytes> bytes;
  QCCL_TRY(read_message(bytes.data()));
  auto message = shm::decode_link_message(bytes.data());
  if (!message) return refuse(message.failure());
  if (message->kind == LinkMessageKind::refused) {
    return Failure(message->reason, fmt::format("rank {} refused ({})", link_.peer, to_string(message->reason)));
  }
  if (message->rank != link_.peer || message->target != home_.rank) {
    return refuse(Failure(ErrorKind::corrupt_data,
                          fmt::format("rank {} meant to share memory with rank {}", message->rank, message->target)));
  }
  if (message->kind != kind || received_.size() != descriptors) {
    return refuse(
        Failure(ErrorKind::corrupt_data, fmt::format("message {} with {} descriptors came out of turn",
                                                     static_cast<std::uint32_t>(message->kind), received_.size())));
  }
  return message;
}

// Tells the peer why this rank cannot go on, if the peer still listens.
Failure Conversation::refuse(Failure failure) {
  std::array<std::byte, kLinkMessageBytes> bytes;
  shm::encode_link_message({LinkMessageKind::refused, home_.rank, link_.peer, link_.large_slots, failure.info().kind},
                           bytes.data());
  static_cast<void>(os::send_descriptors(link_.socket.get(), bytes, {}));
  return failure;
}

Failure Conversation::explain(Failure failure) const {
  ErrorInfo& info = failure.info();
  info.rank = home_.rank;
  info.peer = link_.peer;
  info.message = fmt::format("rank {} can't share memory with rank {}: {}", home_.rank, link_.peer, info.message);
  return failure;
}

}  // namespace

ShmHome create_shm_home(int rank, int local_ranks) {
  ShmHome home;
  home.rank = rank;
  home.large_slots = large_slots_for(local_ranks);
  if (const Status furnished = furnish(home); !furnished.ok()) home.unsupported_reason = furnished.error();
  return home;
}

Result<ShmLink> make_shm_link(os::Fd unix_socket, const ShmHome& home, int peer, TimePoint deadline,
                              const Clock& clock) {
  return Conversation(std::move(unix_socket), home, peer, deadline, clock).run();
}

}  // namespace qccl
