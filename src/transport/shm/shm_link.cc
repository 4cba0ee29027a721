#include "transport/shm/shm_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "os/net/socket.h"

namespace qccl {

Status shm::check(const LinkMessage& message) {
  if (message.magic != kLinkMagic) {
    return Failure(ErrorKind::corrupt_data, "the offer of shared memory does not begin with QCCLSHM1");
  }
  if (message.layout != kLayoutVersion) {
    return Failure(
        ErrorKind::unsupported,
        fmt::format("the peer lays out shared memory by version {}, this build by {}", message.layout, kLayoutVersion));
  }
  if (message.kind < LinkMessageKind::offer || message.kind > LinkMessageKind::refused ||
      message.reason > static_cast<std::uint32_t>(ErrorKind::unsupported)) {
    return Failure(ErrorKind::corrupt_data,
                   fmt::format("shared memory message of unknown kind {}", static_cast<std::uint32_t>(message.kind)));
  }
  if (message.large_slots < kMinLargeSlots || message.large_slots > kMaxLargeSlots ||
      message.pair_bytes != pair_bytes(message.large_slots) || message.area_bytes != sizeof(Area)) {
    return Failure(ErrorKind::corrupt_data,
                   fmt::format("shared memory with {} large slots has another size here", message.large_slots));
  }
  if (message.heap_bytes > kHeapBytes || message.heap_bytes % kPageBytes != 0) {
    return Failure(ErrorKind::corrupt_data, fmt::format("invalid heap size: {} bytes", message.heap_bytes));
  }
  return {};
}

namespace {

using shm::LinkMessage;
using shm::LinkMessageKind;

// At 16 slots for 8 ranks a process shares at most 2 x 8 x 16 large slots. More ranks share as many, down to 4 each.
std::uint32_t large_slots_for(int local_ranks) {
  const auto ranks = static_cast<std::uint32_t>(std::max(local_ranks, 1));
  return std::clamp(8 * shm::kMaxLargeSlots / ranks, shm::kMinLargeSlots, shm::kMaxLargeSlots);
}

std::shared_ptr<os::Mapping> share(os::Mapping mapping) { return std::make_shared<os::Mapping>(std::move(mapping)); }

Status allocate(ShmExports& exports) {
  QCCL_ASSIGN(auto doorbell, os::create_eventfd());
  QCCL_ASSIGN(auto area, os::create_shared_memory("qccl-area", sizeof(shm::Area)));
  QCCL_ASSIGN(auto heap, os::create_shared_heap("qccl-heap", shm::kHeapBytes));
  exports.doorbell = std::move(doorbell);
  exports.area_fd = std::move(area.fd);
  exports.area = share(std::move(area.mapping));
  exports.heap = std::make_shared<os::SharedHeapFile>(std::move(heap));
  return {};
}

// One side of the handshake in shm_endpoint.h.
class LinkHandshake {
 public:
  LinkHandshake(os::Fd socket, const ShmExports& exports, int peer, TimePoint deadline, const Clock& clock)
      : exports_(exports), deadline_(deadline), clock_(clock) {
    link_.peer = peer;
    link_.large_slots = exports.large_slots;
    link_.socket = std::move(socket);
  }

  Result<ShmLink> run() {
    auto done = exports_.rank < link_.peer ? offer() : accept();
    if (!done) return explain(done.failure());
    return std::move(link_);
  }

 private:
  Status offer() {
    if (exports_.unsupported_reason) return refuse(Failure(*exports_.unsupported_reason));
    auto pair = os::create_shared_memory("qccl-pair", shm::pair_bytes(link_.large_slots));
    if (!pair) return refuse(pair.failure());
    link_.pair = share(std::move(pair->mapping));
    QCCL_TRY(send(LinkMessageKind::offer,
                  {pair->fd.get(), exports_.doorbell.get(), exports_.area_fd.get(), exports_.heap->fd.get()}));
    QCCL_ASSIGN(const auto answer, receive(LinkMessageKind::answer, 3));
    if (auto taken = take_exports(0, answer.heap_bytes); !taken) return refuse(taken.failure());
    return send(LinkMessageKind::accepted);
  }

  Status accept() {
    QCCL_ASSIGN(const auto offered, receive(LinkMessageKind::offer, 4));
    if (exports_.unsupported_reason) return refuse(Failure(*exports_.unsupported_reason));
    link_.large_slots = offered.large_slots;
    auto pair = os::map_shared_memory(received_[0], shm::pair_bytes(link_.large_slots));
    if (!pair) return refuse(pair.failure());
    link_.pair = share(std::move(*pair));
    if (auto taken = take_exports(1, offered.heap_bytes); !taken) return refuse(taken.failure());
    QCCL_TRY(send(LinkMessageKind::answer, {exports_.doorbell.get(), exports_.area_fd.get(), exports_.heap->fd.get()}));
    QCCL_TRY(receive(LinkMessageKind::accepted, 0));
    return {};
  }

  // Takes the peer's doorbell, area and heap, whose descriptors begin at `first` in the last message.
  Status take_exports(std::size_t first, std::uint64_t heap_bytes) {
    QCCL_ASSIGN(auto area, os::map_shared_memory(received_[first + 1], sizeof(shm::Area)));
    QCCL_TRY(os::check_sealed(received_[first + 2], heap_bytes));
    link_.doorbell = std::move(received_[first]);
    link_.area = share(std::move(area));
    link_.heap = std::make_shared<os::SharedHeapFile>(os::SharedHeapFile{std::move(received_[first + 2]), heap_bytes});
    return {};
  }

  LinkMessage message(LinkMessageKind kind) const {
    return {.kind = kind,
            .rank = exports_.rank,
            .target = link_.peer,
            .large_slots = link_.large_slots,
            .pair_bytes = shm::pair_bytes(link_.large_slots),
            .heap_bytes = exports_.heap ? exports_.heap->bytes : 0};
  }

  // The socket's buffer holds more than either side ever sends, so this does not block.
  Status send(LinkMessageKind kind, std::initializer_list<int> descriptors = {}) {
    const LinkMessage sending = message(kind);
    const auto sent = os::send_descriptors(link_.socket.get(), std::as_bytes(std::span(&sending, 1)),
                                           {descriptors.begin(), descriptors.size()});
    if (sent.bytes == sizeof(sending)) return {};
    return Failure(ErrorKind::peer_lost, sent.lost() ? os::describe(sent) : "the socket took no message");
  }

  Result<LinkMessage> read_message() {
    LinkMessage message;
    const Bytes target = std::as_writable_bytes(std::span(&message, 1));
    received_.clear();
    for (std::size_t filled = 0; filled < target.size();) {
      QCCL_ASSIGN(const bool readable, os::wait_ready(link_.socket, os::Direction::read, deadline_, clock_));
      if (!readable) return Failure(ErrorKind::deadline_exceeded, "no answer by the deadline");
      const auto got = os::recv_descriptors(link_.socket.get(), target.subspan(filled), received_);
      if (got.lost()) return Failure(ErrorKind::peer_lost, os::describe(got));
      filled += got.bytes;
    }
    return message;
  }

  Result<LinkMessage> receive(LinkMessageKind kind, std::size_t descriptors) {
    QCCL_ASSIGN(const LinkMessage message, read_message());
    if (auto checked = shm::check(message); !checked) return refuse(checked.failure());
    if (message.kind == LinkMessageKind::refused) {
      const auto reason = static_cast<ErrorKind>(message.reason);
      return Failure(reason, fmt::format("rank {} refused ({})", link_.peer, to_string(reason)));
    }
    if (message.rank != link_.peer || message.target != exports_.rank) {
      return refuse(Failure(ErrorKind::corrupt_data,
                            fmt::format("rank {} meant to share memory with rank {}", message.rank, message.target)));
    }
    if (message.kind != kind || received_.size() != descriptors) {
      return refuse(
          Failure(ErrorKind::corrupt_data, fmt::format("message {} with {} descriptors came out of order",
                                                       static_cast<std::uint32_t>(message.kind), received_.size())));
    }
    return message;
  }

  // Sends the reason for this rank's failure to the peer, if it still exists.
  Failure refuse(Failure failure) {
    LinkMessage refusal = message(LinkMessageKind::refused);
    refusal.reason = static_cast<std::uint32_t>(failure.info().kind);
    static_cast<void>(os::send_descriptors(link_.socket.get(), std::as_bytes(std::span(&refusal, 1)), {}));
    return failure;
  }

  Failure explain(Failure failure) const {
    ErrorInfo& info = failure.info();
    info.rank = exports_.rank;
    info.peer = link_.peer;
    info.message = fmt::format("rank {} can't share memory with rank {}: {}", exports_.rank, link_.peer, info.message);
    return failure;
  }

  const ShmExports& exports_;
  const TimePoint deadline_;
  const Clock& clock_;
  ShmLink link_;
  std::vector<os::Fd> received_;  // descriptors of the last message
};

}  // namespace

ShmExports create_shm_exports(int rank, int local_ranks) {
  ShmExports exports;
  exports.rank = rank;
  exports.large_slots = large_slots_for(local_ranks);
  if (const Status allocated = allocate(exports); !allocated.ok()) exports.unsupported_reason = allocated.error();
  return exports;
}

Result<ShmLink> make_shm_link(os::Fd unix_socket, const ShmExports& exports, int peer, TimePoint deadline,
                              const Clock& clock) {
  return LinkHandshake(std::move(unix_socket), exports, peer, deadline, clock).run();
}

}  // namespace qccl
