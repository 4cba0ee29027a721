#include "bootstrap/store/tcp_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

constexpr Nanoseconds kIntroductionLimit = std::chrono::seconds(10);
constexpr Nanoseconds kFirstRetryDelay = std::chrono::milliseconds(5);
constexpr Nanoseconds kLastRetryDelay = std::chrono::milliseconds(250);
// Lets a failing rank's last message to the others get through after its deadline.
constexpr Nanoseconds kLastWordLimit = std::chrono::seconds(1);
constexpr std::size_t kMaxAnswerBytes = 16 * kMaxValueBytes;

Status check_sizes(const std::string& key, std::size_t value_bytes) {
  if (wire_key(key).size() <= kMaxKeyBytes && value_bytes <= kMaxValueBytes) return {};
  return Failure(ErrorKind::invalid_argument, fmt::format("store key of {} bytes with a value of {}: at most {} and {}",
                                                          key.size(), value_bytes, kMaxKeyBytes - 1, kMaxValueBytes));
}

Result<StoreRequest> will_request(const Will& will) {
  StoreRequest request{.query = Query::will};
  for (const auto& [key, value] : will) {
    QCCL_TRY(check_sizes(key, value.size()));
    request.keys.push_back(wire_key(key));
    request.values.push_back(value);
  }
  return request;
}

std::string location(const TcpStoreOptions& options) {
  if (!options.socket.empty()) return "the store at unix socket @" + options.socket;
  return "the store at " + os::address_text(options.host, options.port);
}

TimePoint within(std::chrono::milliseconds timeout, const TcpStoreOptions& options) {
  return std::min(options.deadline, saturating_add(options.clock->now(), timeout));
}

// A server that has not answered by then is lost.
TimePoint answer_deadline(const TcpStoreOptions& options) {
  const TimePoint now = options.clock->now();
  const TimePoint last = std::max(options.deadline, saturating_add(now, kLastWordLimit));
  return std::min(last, saturating_add(now, options.answer_limit));
}

Failure keys_differ(const TcpStoreOptions& options, const std::string& what) {
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("{} {}: give all ranks the same key (QCCL_KEY_FILE, QCCL_KEY or InitOptions::key)",
                             location(options), what));
}

// TLS's handshake, if the store has a key.
Status authenticate(const TcpStoreOptions& options, secure::Stream& stream, TimePoint deadline) {
  if (!options.secrets.has_key() || !options.socket.empty()) return {};
  QCCL_ASSIGN(auto tls, secure::Tls::client(stream.get(), options.secrets.credentials()));
  stream.set_tls(std::move(tls));
  const Status done = stream.shake_hands(deadline, *options.clock);
  if (done.ok()) return {};
  if (done.error().kind == ErrorKind::misuse) return keys_differ(options, "refused this rank's key");
  if (done.error().kind == ErrorKind::corrupt_data) {
    return keys_differ(options, "has no key, and this rank has one (it " + done.error().message + ")");
  }
  return Failure(done.error());
}

// `was_connected`: whether this client has ever reached the store.
Failure not_reached(const TcpStoreOptions& options, bool was_connected, const ErrorInfo& cause, Nanoseconds waited) {
  ErrorInfo info;
  info.os_error = cause.os_error;
  const std::string reason = " within " + seconds_text(waited) + " (" + cause.message + ")";
  if (was_connected) {
    info.kind = ErrorKind::peer_lost;
    info.message = location(options) + " vanished and did not come back" + reason +
                   ": rank 0, or the launcher that serves it, has ended; its output says why";
  } else {
    info.kind = cause.kind == ErrorKind::invalid_argument ? cause.kind : ErrorKind::deadline_exceeded;
    info.message = "can't reach " + location(options) + reason + ": is rank 0 running? ";
    info.message += options.socket.empty() ? "Check MASTER_ADDR, MASTER_PORT and firewalls in between"
                                           : "Ranks in containers of their own need MASTER_ADDR and MASTER_PORT";
  }
  return Failure(std::move(info));
}

}  // namespace

TcpStore::TcpStore(TcpStoreOptions options)
    : options_(std::move(options)), connect_deadline_(std::min(options_.deadline, options_.connect_by)) {}

TcpStore::TcpStore(TcpStoreOptions options, os::Fd connected) : TcpStore(std::move(options)) {
  stream_ = std::move(connected);
  was_connected_ = true;
  serves_wills_ = true;
}

// The connection cannot be used any more.
Failure TcpStore::lost(const ErrorInfo& cause) {
  stream_.reset();
  if (has_left_something_) {
    connect_deadline_ = std::min(options_.deadline, saturating_add(options_.clock->now(), kVanishedLimit));
  }
  ErrorInfo info;
  info.kind = cause.kind == ErrorKind::deadline_exceeded ? cause.kind : ErrorKind::peer_lost;
  info.os_error = cause.os_error;
  info.message = "lost " + location(options_) + ": " + cause.message;
  return Failure(std::move(info));
}

// Retries until the deadline while nothing listens: rank 0 may start later.
Result<os::Fd> TcpStore::dial() const {
  const Clock& clock = *options_.clock;
  if (options_.socket.empty()) {
    const auto connect = options_.retries ? os::connect_tcp : os::connect_tcp_once;
    return connect(options_.host, options_.port, connect_deadline_, clock);
  }
  for (Nanoseconds delay = kFirstRetryDelay;; delay = std::min(2 * delay, kLastRetryDelay)) {
    auto socket = os::connect_unix_abstract(options_.socket);
    const Status same = socket ? os::check_same_user(*socket) : Status();
    if (!same.ok()) return Failure(ErrorKind::invalid_argument, same.error().message);
    const Nanoseconds left = connect_deadline_ - clock.now();
    if (socket || left <= Nanoseconds::zero()) return socket;
    os::pause(std::min(delay, left));
  }
}

Status TcpStore::connect(const Exchange& first) {
  if (stream_.valid()) return {};
  const Clock& clock = *options_.clock;
  const TimePoint start = clock.now();
  for (Nanoseconds delay = kFirstRetryDelay;; delay = std::min(2 * delay, kLastRetryDelay)) {
    auto fd = dial();
    if (!fd) return not_reached(options_, was_connected_, fd.error(), clock.now() - start);
    stream_ = std::move(*fd);
    const auto introduced = introduce(first, std::min(connect_deadline_, clock.now() + kIntroductionLimit));
    if (introduced.ok()) break;
    stream_.reset();
    if (introduced.error().kind == ErrorKind::invalid_argument) return Failure(introduced.error());
    const Nanoseconds left = connect_deadline_ - clock.now();
    if (left <= Nanoseconds::zero() || !options_.retries) {
      return not_reached(options_, was_connected_, introduced.error(), clock.now() - start);
    }
    os::pause(std::min(delay, left));
  }
  was_connected_ = true;
  connect_deadline_ = options_.deadline;
  return {};
}

// Validation itself has no answer. The answers to the checks show that the server has not dropped this connection among
// a crowd of strangers, and what it knows.
Status TcpStore::introduce(const Exchange& first, TimePoint deadline) {
  const std::string bytes = encode_request({.query = Query::validate, .number = kStoreMagic}) +
                            encode_request({.query = Query::check, .keys = {wire_key(kServesAwait)}}) +
                            encode_request({.query = Query::check, .keys = {wire_key(kServesWills)}}) + first.requests;
  QCCL_TRY(authenticate(options_, stream_, deadline));
  QCCL_TRY(stream_.write_exactly(std::as_bytes(std::span(bytes)), deadline, *options_.clock));
  std::byte serves_await{}, serves_wills{};
  QCCL_TRY(stream_.read_exactly(Bytes(&serves_await, 1), deadline, *options_.clock));
  if (serves_await == std::byte{kKeysDiffer}) return keys_differ(options_, "has a key, and this rank has none");
  QCCL_TRY(stream_.read_exactly(Bytes(&serves_wills, 1), deadline, *options_.clock));
  serves_await_ = serves_await == std::byte{kReady};
  serves_wills_ = serves_wills == std::byte{kReady};
  return first.answers.empty() ? Status() : stream_.read_exactly(first.answers, deadline, *options_.clock);
}

Status TcpStore::send(const std::string& requests) {
  QCCL_TRY(connect());
  const auto sent =
      stream_.write_exactly(std::as_bytes(std::span(requests)), answer_deadline(options_), *options_.clock);
  if (!sent.ok()) return lost(sent.error());
  return {};
}

Status TcpStore::receive(Bytes target, TimePoint deadline) {
  const auto got = stream_.read_exactly(target, deadline, *options_.clock);
  if (!got.ok()) return lost(got.error());
  return {};
}

template <class T>
Result<T> TcpStore::receive_integer(TimePoint deadline) {
  std::byte bytes[sizeof(T)];
  QCCL_TRY(receive(bytes, deadline));
  return load<T>(bytes);
}

Result<std::string> TcpStore::receive_string() {
  const TimePoint deadline = answer_deadline(options_);
  QCCL_ASSIGN(const auto bytes, receive_integer<std::uint64_t>(deadline));
  if (bytes > kMaxAnswerBytes) {
    return lost(Failure(ErrorKind::corrupt_data, fmt::format("it sent a value of {} bytes", bytes)).info());
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  if (text.empty()) return text;
  QCCL_TRY(receive(std::as_writable_bytes(std::span(text)), deadline));
  return text;
}

// After an await or a wait for the key has been sent: its value, or nothing if it does not exist by the deadline.
Result<std::optional<std::string>> TcpStore::receive_awaited(const std::string& key, TimePoint deadline) {
  auto ready = stream_.wait_readable(deadline, *options_.clock);
  if (!ready) return lost(ready.error());
  const bool cancels = !*ready;
  if (cancels) QCCL_TRY(send({.query = Query::cancel_wait}));
  QCCL_ASSIGN(const auto answer, receive_integer<std::uint8_t>(answer_deadline(options_)));
  if (answer == kServerEnds) {
    Failure ended = lost(Failure(ErrorKind::peer_lost, "it ends in good order").info());
    connect_deadline_ = options_.deadline;
    return ended;
  }
  if (answer != kReady) return std::optional<std::string>();
  // The key may have appeared at the last moment: then the wait's answer precedes the cancellation's.
  std::string value;
  if (serves_await_) {
    QCCL_ASSIGN(value, receive_string());
  }
  if (cancels) QCCL_TRY(receive_integer<std::uint8_t>(answer_deadline(options_)));
  if (!serves_await_) {
    QCCL_TRY(send({.query = Query::get, .keys = {key}}));
    QCCL_ASSIGN(value, receive_string());
  }
  return std::optional<std::string>(std::move(value));
}

Result<std::optional<std::string>> TcpStore::try_get(const std::string& key, std::chrono::milliseconds timeout) {
  QCCL_TRY(check_sizes(key, 0));
  QCCL_TRY(connect());
  const TimePoint deadline = within(timeout, options_);
  if (deadline <= options_.clock->now()) {
    QCCL_TRY(send({.query = Query::check, .keys = {wire_key(key)}}));
    QCCL_ASSIGN(const auto answer, receive_integer<std::uint8_t>(answer_deadline(options_)));
    if (answer != kReady) return std::optional<std::string>();
    QCCL_TRY(send({.query = Query::get, .keys = {wire_key(key)}}));
    QCCL_ASSIGN(auto value, receive_string());
    return std::optional<std::string>(std::move(value));
  }
  QCCL_TRY(send({.query = serves_await_ ? Query::await : Query::wait, .keys = {wire_key(key)}}));
  return receive_awaited(wire_key(key), deadline);
}

std::optional<std::string> TcpStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  return try_get(key, timeout).take_or_throw();
}

void TcpStore::set(const std::string& key, const std::string& value) {
  check_sizes(key, value.size()).take_or_throw();
  send({.query = Query::set, .keys = {wire_key(key)}, .value = value}).take_or_throw();
  has_left_something_ = true;
}

void TcpStore::leave_will(const Will& will) {
  if (will.empty() && !stream_.valid()) return;  // the will has ended with the connection
  const StoreRequest request = will_request(will).take_or_throw();
  connect().take_or_throw();
  if (serves_wills_) send(request).take_or_throw();
}

std::int64_t TcpStore::add(const std::string& key, std::int64_t delta) {
  check_sizes(key, 0).take_or_throw();
  send({.query = Query::add, .keys = {wire_key(key)}, .number = delta}).take_or_throw();
  return receive_integer<std::int64_t>(answer_deadline(options_)).take_or_throw();
}

std::vector<std::int64_t> TcpStore::counters(const std::vector<std::string>& keys) {
  std::vector<std::int64_t> sums(keys.size());
  Exchange exchange{.requests = "", .answers = std::as_writable_bytes(std::span(sums))};
  for (const std::string& key : keys) {
    check_sizes(key, 0).take_or_throw();
    exchange.requests += encode_request({.query = Query::add, .keys = {wire_key(key)}});
  }
  if (stream_.valid()) {
    send(exchange.requests).take_or_throw();
    receive(exchange.answers, answer_deadline(options_)).take_or_throw();
  } else {
    connect(exchange).take_or_throw();
  }
  return sums;
}

// For a server that keeps the first value of a key, and executes the will of nobody whose card came second.
Result<ClaimAnswer> TcpStore::claim_at_once(const ClaimRequest& request, std::chrono::milliseconds timeout) {
  const std::string awaited_key = wire_key(request.awaited_key);
  std::string will;
  if (serves_wills_ && !request.will.empty()) {
    QCCL_ASSIGN(const StoreRequest left, will_request(request.will));
    will = encode_request(left);
  }
  QCCL_TRY(send(will + encode_request({.query = Query::add, .keys = {wire_key(request.counter)}, .number = 1}) +
                encode_request({.query = Query::set, .keys = {wire_key(request.card_key)}, .value = request.card}) +
                encode_request({.query = Query::await, .keys = {awaited_key}})));
  has_left_something_ = true;
  ClaimAnswer answer;
  QCCL_ASSIGN(answer.count, receive_integer<std::int64_t>(answer_deadline(options_)));
  QCCL_ASSIGN(answer.awaited,
              receive_awaited(awaited_key, answer.count == 1 ? within(timeout, options_) : TimePoint{}));
  return answer;
}

ClaimAnswer TcpStore::claim(const ClaimRequest& request, std::chrono::milliseconds timeout) {
  check_sizes(request.card_key, request.card.size()).take_or_throw();
  connect().take_or_throw();
  if (serves_await_) return claim_at_once(request, timeout).take_or_throw();
  return claim_in_steps(*this, request, timeout);
}

}  // namespace qccl::bootstrap
