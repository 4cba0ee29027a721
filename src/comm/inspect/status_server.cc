#include "comm/inspect/status_server.h"

#include <new>
#include <span>
#include <utility>

#include "base/clock.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::comm {
namespace {

constexpr Nanoseconds kPatience = std::chrono::seconds(1);          // with a process that does not read its answer
constexpr Nanoseconds kRetryDelay = std::chrono::milliseconds(20);  // after an accept without descriptors or memory

}  // namespace

StatusServer::StatusServer(const RankStatus& self, Report report) : report_(std::move(report)) {
  auto listener = os::listen_unix_abstract(status_socket_name(self));
  if (!listener) return;
  listener_ = std::move(*listener);
  thread_ = std::thread([this] { serve(); });
}

StatusServer::~StatusServer() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  os::stop_listening(listener_);
  thread_.join();
}

void StatusServer::serve() {
  const SteadyClock clock;
  while (!stopping_.load()) {
    auto ready = os::wait_ready(listener_, os::Direction::read, kForever, clock);
    if (stopping_.load()) return;
    auto connection = ready ? os::accept_connection(listener_) : ready.failure();
    if (!connection) {
      os::pause(kRetryDelay);
    } else if (*connection) {
      try {
        answer(**connection);
      } catch (const std::bad_alloc&) {  // the connection ends without an answer
      }
    }
  }
}

void StatusServer::answer(const os::Fd& connection) {
  auto peer = os::peer_credentials(connection);
  if (!peer || (peer->user != 0 && peer->user != os::own_credentials().user)) return;
  RankStatus status;
  report_(status);
  const std::string text = encode_status(status);
  const SteadyClock clock;
  static_cast<void>(
      os::write_exactly(connection, std::as_bytes(std::span(text)), saturating_add(clock.now(), kPatience), clock));
}

}  // namespace qccl::comm
