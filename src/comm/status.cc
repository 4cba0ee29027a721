// The public ranks_on_this_host(): asks every rank that listens, all at once.
#include "qccl/status.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "comm/status_server.h"
#include "os/process.h"
#include "os/socket.h"
#include "os/stream.h"
#include "os/unix_socket.h"

namespace qccl {
namespace {

struct Asked {
  RankStatus status;
  os::Fd connection;
};

// Everything up to the end of file; less if the deadline comes first.
std::string read_answer(const os::Fd& connection, TimePoint deadline, const Clock& clock) {
  std::string text;
  std::array<std::byte, 4096> piece;
  for (;;) {
    auto ready = os::wait_ready(connection, os::Direction::read, deadline, clock);
    if (!ready || !*ready) return text;
    const os::IoResult got = os::read_some(connection.get(), piece);
    if (got.lost()) return text;
    text.append(reinterpret_cast<const char*>(piece.data()), got.bytes);
  }
}

}  // namespace

std::vector<RankStatus> ranks_on_this_host(Milliseconds patience) {
  std::vector<Asked> asked;
  for (const std::string& name : os::abstract_listeners(comm::status_socket_prefix())) {
    auto status = comm::parse_status_socket_name(name);
    if (!status) continue;
    auto connection = os::connect_unix_abstract(name);
    if (!connection && connection.error().kind == ErrorKind::peer_lost) continue;  // it has just ended
    asked.push_back({std::move(*status), connection ? std::move(*connection) : os::Fd()});
  }
  const SteadyClock clock;
  const TimePoint deadline = saturating_add(clock.now(), patience);
  std::vector<RankStatus> ranks;
  for (auto& [status, connection] : asked) {
    if (connection.valid()) {
      const std::string text = read_answer(connection, deadline, clock);
      status.answered = comm::decode_status(text, status).ok();
    }
    status.state = os::process_state(status.process);
    ranks.push_back(std::move(status));
  }
  std::sort(ranks.begin(), ranks.end(), [](const RankStatus& a, const RankStatus& b) {
    return std::tie(a.job, a.rank, a.process) < std::tie(b.job, b.rank, b.process);
  });
  return ranks;
}

}  // namespace qccl
