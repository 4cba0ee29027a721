// Connecting to names and addresses, and the routes there. Nothing that the system says about the network is final:
// names get other addresses, routes and interfaces come later. So every try asks again.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/log.h"
#include "os/net/addresses.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::os {
namespace {

// An address that has not answered by then gives way to the next one.
constexpr Nanoseconds kSilenceLimit = std::chrono::seconds(3);
constexpr Nanoseconds kFirstRetryDelay = std::chrono::milliseconds(5);
constexpr Nanoseconds kLastRetryDelay = std::chrono::milliseconds(250);
// Each try of a name may ask a server that all ranks ask.
constexpr Nanoseconds kLastNameDelay = std::chrono::seconds(1);

bool is_numeric(const std::string& host) { return numeric_address(host, 0).ok(); }

// This process can't open a socket: no other address or time helps.
bool is_own_limit(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

bool is_refusal(int error) { return error == ECONNREFUSED || error == ECONNRESET || error == ECONNABORTED; }

// Connected, or on the way; invalid and errno if it failed at once.
Fd begin_connect(const addrinfo& address) {
  Fd fd(::socket(address.ai_family, kStream, 0));
  if (!fd.valid() || ::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return fd;
  if (errno == EINPROGRESS || errno == EINTR) return fd;
  const int error = errno;
  fd.reset();
  errno = error;
  return fd;
}

int connect_error(const Fd& socket) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

struct Attempt {
  Fd fd{};                 // valid: connected
  int error = 0;           // a refusal only if all addresses refuse; 0: no answer, or no address
  bool is_silent = false;  // an address may still answer
  std::string reason{};    // of each address
};

Attempt connect_address(const addrinfo& address, TimePoint deadline, const Clock& clock) {
  Attempt attempt{.fd = begin_connect(address)};
  if (attempt.fd.valid()) {
    auto ready = wait_ready(attempt.fd, Direction::write, deadline, clock);
    attempt.is_silent = ready.ok() && !*ready;
    attempt.error = !ready ? ready.error().os_error : attempt.is_silent ? 0 : connect_error(attempt.fd);
    if (attempt.error != 0 || attempt.is_silent) attempt.fd.reset();
  } else {
    attempt.error = errno;
  }
  if (!attempt.fd.valid()) attempt.reason = attempt.is_silent ? "no answer" : error_text(attempt.error);
  return attempt;
}

// Tries all addresses that the host has now. `patience`: how long the last one may be silent.
Attempt connect_now(const std::string& host, std::uint16_t port, Nanoseconds patience, TimePoint deadline,
                    const Clock& clock) {
  auto found = addresses_now(host.empty() ? "localhost" : host, port);
  if (!found) return {.error = found.error().os_error, .reason = found.error().message};
  const bool is_one = (*found)->ai_next == nullptr;
  Attempt all;
  std::vector<std::string> reasons;
  for (const addrinfo* address = found->get(); address != nullptr; address = address->ai_next) {
    const Nanoseconds limit = address->ai_next == nullptr ? patience : kSilenceLimit;
    Attempt one = connect_address(*address, std::min(deadline, saturating_add(clock.now(), limit)), clock);
    if (one.fd.valid()) return one;
    reasons.push_back(is_one ? one.reason : numeric_text(address->ai_addr, address->ai_addrlen) + " " + one.reason);
    if (reasons.size() == 1 || !is_refusal(one.error)) all.error = one.error;
    all.is_silent |= one.is_silent;
    if (is_own_limit(one.error)) break;
  }
  all.reason = fmt::format("{}", fmt::join(reasons, ", "));
  return all;
}

std::string failure_text(const std::string& host, std::uint16_t port) {
  return "can't connect to " + address_text(host, port);
}

Failure failure_of(ErrorKind kind, const std::string& text, const Attempt& attempt) {
  Failure failure(kind, text + ": " + attempt.reason);
  failure.info().os_error = attempt.error;
  return failure;
}

Result<Fd> without_delay(Fd socket) {
  QCCL_TRY(set_no_delay(socket));
  return socket;
}

Result<std::string> source_address(const addrinfo& target) {
  const Fd fd(::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t bytes = sizeof(own);
  if (!fd.valid() || ::connect(fd.get(), target.ai_addr, target.ai_addrlen) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0) {
    return os_failure(ErrorKind::peer_lost, "no route to " + numeric_text(target.ai_addr, target.ai_addrlen), errno);
  }
  return numeric_text(reinterpret_cast<const sockaddr*>(&own), bytes);
}

// The pauses between tries, and a line in the log before the first of a name or route that is not there.
class Retries {
 public:
  Retries(const std::string& host, TimePoint deadline, const Clock& clock)
      : longest_(is_numeric(host) ? kLastRetryDelay : kLastNameDelay), deadline_(deadline), clock_(clock) {}

  // False: the deadline has passed.
  bool wait(const std::string& what, const std::string& reason) {
    const Nanoseconds left = deadline_ - clock_.now();
    if (left <= Nanoseconds::zero()) return false;
    if (reason != logged_) log(LogLevel::info, what + ", tries again: " + reason);
    logged_ = reason;
    pause(std::min(delay_, left));
    delay_ = std::min(2 * delay_, longest_);
    return true;
  }

 private:
  const Nanoseconds longest_;
  const TimePoint deadline_;
  const Clock& clock_;
  Nanoseconds delay_ = kFirstRetryDelay;
  std::string logged_;
};

}  // namespace

std::string without_brackets(const std::string& host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

Result<std::string> local_address_towards(const std::string& host) {
  constexpr std::uint16_t kAnyPort = 9;  // connecting a datagram socket only asks the routing table
  QCCL_ASSIGN(const auto found, addresses_now(host, kAnyPort));
  Result<std::string> last = Failure(ErrorKind::peer_lost, "no route to " + host);
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
    last = source_address(*entry);
    if (last) return last;
  }
  return last;
}

Result<std::string> local_address_towards(const std::string& host, TimePoint deadline, const Clock& clock) {
  Retries retries(host, deadline, clock);
  for (;;) {
    auto found = local_address_towards(host);
    if (found || !retries.wait("no way to " + host, found.error().message)) return found;
  }
}

Result<Fd> connect_tcp(const std::string& host, std::uint16_t port, TimePoint deadline, const Clock& clock) {
  const std::string what = failure_text(host, port);
  Retries retries(host, deadline, clock);
  for (;;) {
    Attempt attempt = connect_now(host, port, kSilenceLimit, deadline, clock);
    if (attempt.fd.valid()) return without_delay(std::move(attempt.fd));
    if (is_own_limit(attempt.error)) return failure_of(ErrorKind::resource_exhausted, what, attempt);
    if (!retries.wait(what, attempt.reason)) {
      return failure_of(ErrorKind::deadline_exceeded, what + " in time", attempt);
    }
  }
}

Result<Fd> connect_tcp_once(const std::string& host, std::uint16_t port, TimePoint deadline, const Clock& clock) {
  const std::string what = failure_text(host, port);
  Attempt attempt = connect_now(host, port, Nanoseconds::max(), deadline, clock);
  if (attempt.fd.valid()) return without_delay(std::move(attempt.fd));
  if (is_own_limit(attempt.error)) return failure_of(ErrorKind::resource_exhausted, what, attempt);
  if (attempt.is_silent) return failure_of(ErrorKind::deadline_exceeded, what + " in time", attempt);
  return failure_of(ErrorKind::peer_lost, what, attempt);
}

Result<Fd> begin_connect_tcp(const std::string& address, std::uint16_t port) {
  QCCL_ASSIGN(const auto found, numeric_address(address, port));
  Fd fd = begin_connect(*found);
  if (!fd.valid()) return os_failure(failure_text(address, port), errno);
  return fd;
}

Status end_connect_tcp(const Fd& socket) {
  const int error = connect_error(socket);
  return error == 0 ? set_no_delay(socket) : os_failure("can't connect", error);
}

bool was_refused(const ErrorInfo& failure) { return is_refusal(failure.os_error); }

}  // namespace qccl::os
