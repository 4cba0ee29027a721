#include "job/status_server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::comm {
namespace {

constexpr Nanoseconds kPatience = std::chrono::seconds(1);          // with a process that does not read its answer
constexpr Nanoseconds kRetryDelay = std::chrono::milliseconds(20);  // after an accept without descriptors or memory

// ---- How a rank's status travels: its socket's name and the lines of its answer

constexpr std::size_t kMaxCalls = 64;
constexpr std::size_t kMaxGroups = 4096;
constexpr std::size_t kMaxFieldBytes = 1024;
constexpr std::string_view kEnd = "end\n";

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto value = parse_number<Number>(text);
  number = value.value_or(number);
  return value.has_value();
}

// One field; separators of fields and lines become blanks.
std::string field(std::string_view text) { return printable(text.substr(0, kMaxFieldBytes)); }

// Returns false and does nothing if there is no room for the line.
bool append_line(std::string& text, const std::string& line) {
  if (text.size() + line.size() + kEnd.size() > kMaxStatusBytes) return false;
  text += line;
  return true;
}

bool read_call(const std::vector<std::string>& fields, CallStatus& call) {
  if (fields.size() != 8) return false;
  call.group = printable(fields[1]);
  call.call = printable(fields[7]);
  bool good = read_number(fields[2], call.number) && read_number(fields[3], call.seconds) &&
              read_number(fields[4], call.received_bytes) && read_number(fields[5], call.expected_bytes);
  if (fields[6].empty()) return good;
  for (const std::string& rank : split(fields[6], ',')) {
    good = good && read_number(rank, call.waits_for.emplace_back());
  }
  return good;
}

}  // namespace

std::string status_socket_name(const RankStatus& self) {
  return fmt::format("{}{}/{}/{}/{}/{}", kStatusPrefix, os::own_credentials().user, self.job, self.world, self.rank,
                     self.process);
}

std::optional<RankStatus> parse_status_socket_name(const std::string& name) {
  if (!name.starts_with(kStatusPrefix)) return std::nullopt;
  const auto parts = split(std::string_view(name).substr(kStatusPrefix.size()), '/');
  RankStatus status;
  if (parts.size() != 5 || !read_number(parts[0], status.user) || !read_number(parts[2], status.world) ||
      !read_number(parts[3], status.rank) || !read_number(parts[4], status.process)) {
    return std::nullopt;
  }
  status.job = printable(parts[1]);
  return status;
}

std::string encode_status(const RankStatus& status) {
  std::string text;
  for (const CallStatus& call : std::span(status.calls).first(std::min(status.calls.size(), kMaxCalls))) {
    const std::string waits_for = fmt::format("{}", fmt::join(call.waits_for, ","));
    const bool fits = append_line(
        text, fmt::format("call\t{}\t{}\t{:.3f}\t{}\t{}\t{}\t{}\n", field(call.group), call.number, call.seconds,
                          call.received_bytes, call.expected_bytes, waits_for, field(call.call)));
    if (!fits) break;
  }
  for (const GroupStatus& group : std::span(status.groups).first(std::min(status.groups.size(), kMaxGroups))) {
    const std::string line = fmt::format("group\t{}\t{}\t{}\n", field(group.name), group.calls, field(group.failure));
    if (!append_line(text, line)) break;
  }
  return text.append(kEnd);
}

Status decode_status(const std::string& text, RankStatus& status) {
  for (const std::string& line : split(text, '\n')) {
    const auto fields = split(line, '\t');
    if (fields[0] == "end") return {};
    bool good = false;
    if (fields[0] == "group" && fields.size() == 4 && status.groups.size() < kMaxGroups) {
      GroupStatus& group = status.groups.emplace_back(GroupStatus{printable(fields[1]), 0, printable(fields[3])});
      good = read_number(fields[2], group.calls);
    } else if (fields[0] == "call" && status.calls.size() < kMaxCalls) {
      good = read_call(fields, status.calls.emplace_back());
    }
    if (!good) {
      return Failure(ErrorKind::corrupt_data, fmt::format("\"{}\" is not a line of a rank's status", field(line)));
    }
  }
  return Failure(ErrorKind::corrupt_data, "a rank's status has no end");
}

// ---- StatusServer

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
