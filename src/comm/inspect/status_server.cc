#include "comm/inspect/status_server.h"

#include <new>
#include <span>
#include <utility>

#include "base/clock.h"
#include "os/net/socket.h"
#include "os/net/unix_socket.h"
#include "os/thread.h"

namespace qccl::comm {
namespace {

// For one who asks and does not read.
constexpr Nanoseconds kPatience = std::chrono::seconds(1);
// Until an accept that failed, for want of descriptors or memory, is tried again.
constexpr Nanoseconds kRest = std::chrono::milliseconds(20);

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
      os::pause(kRest);
    } else if (*connection) {
      try {
        answer(**connection);
      } catch (const std::bad_alloc&) {  // the connection ends without an answer
      }
    }
  }
}

void StatusServer::answer(const os::Fd& connection) {
  auto who = os::peer_credentials(connection);
  if (!who || (who->user != 0 && who->user != os::own_credentials().user)) return;
  RankStatus status;
  report_(status);
  const std::string text = encode_status(status);
  const SteadyClock clock;
  static_cast<void>(
      os::write_exactly(connection, std::as_bytes(std::span(text)), saturating_add(clock.now(), kPatience), clock));
}

}  // namespace qccl::comm
