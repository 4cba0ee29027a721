#include "job/status/status_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/text.h"
#include "observe/status_text.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::comm {
namespace {

constexpr Nanoseconds kPatience = std::chrono::seconds(1);          // with a process that neither asks nor reads
constexpr std::uint32_t kMostPatienceMs = 60'000;                   // that a question may ask of this thread
constexpr Nanoseconds kRetryDelay = std::chrono::milliseconds(20);  // after an accept without descriptors or memory

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto value = parse_number<Number>(text);
  number = value.value_or(number);
  return value.has_value();
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

std::array<std::byte, StatusQuestion::kBytes> StatusQuestion::encode() const {
  std::array<std::byte, kBytes> bytes;
  store(bytes.data(), static_cast<std::uint8_t>(subject));
  store(bytes.data() + 1, patience_ms);
  return bytes;
}

std::optional<StatusQuestion> StatusQuestion::decode(const std::array<std::byte, kBytes>& bytes) {
  const StatusQuestion question{.subject = static_cast<Subject>(load<std::uint8_t>(bytes.data())),
                                .patience_ms = std::min(load<std::uint32_t>(bytes.data() + 1), kMostPatienceMs)};
  const bool is_known = question.subject == Subject::rank || question.subject == Subject::job;
  return is_known ? std::optional(question) : std::nullopt;
}

// ---- StatusServer

StatusServer::StatusServer(const RankStatus& self, Source& source) : source_(source) {
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
  const SteadyClock clock;
  std::array<std::byte, StatusQuestion::kBytes> bytes;
  if (!os::read_exactly(connection, bytes, saturating_add(clock.now(), kPatience), clock).ok()) return;
  const auto question = StatusQuestion::decode(bytes);
  if (!question) return;
  const std::string text =
      question->subject == StatusQuestion::Subject::rank
          ? internal::encode_status(source_.own())
          : internal::encode_statuses(source_.all(std::chrono::milliseconds(question->patience_ms)));
  static_cast<void>(
      os::write_exactly(connection, std::as_bytes(std::span(text)), saturating_add(clock.now(), kPatience), clock));
}

}  // namespace qccl::comm
