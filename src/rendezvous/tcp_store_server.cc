#include "rendezvous/tcp_store_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <vector>

#include "base/log.h"
#include "os/fork_list.h"
#include "os/poller.h"
#include "os/socket.h"
#include "os/stream.h"
#include "os/thread.h"
#include "rendezvous/fields.h"
#include "rendezvous/store_protocol.h"
#include "rendezvous/store_state.h"

namespace qccl::rendezvous {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::size_t kMaxUnreadAnswerBytes = 8 * kMaxValueBytes;  // a client that asks and never reads
constexpr int kAcceptsPerTurn = 64;                                // then those who are connected get their turn
constexpr Nanoseconds kLongSleep = std::chrono::hours(1);
constexpr std::uint64_t kListenerToken = 0;

struct Connection {
  os::Fd fd;
  bool introduced = false;
  std::string received;
  std::string answers;  // not sent yet
};

}  // namespace

// Everything the thread owns. Others call only request_stop().
class TcpStoreServer::Loop {
 public:
  Loop(os::Poller poller, os::Fd listener) : poller_(std::move(poller)), listener_(std::move(listener)) {}

  void run();
  void request_stop(Nanoseconds linger) {
    linger_nanoseconds_.store(linger.count(), std::memory_order_relaxed);
    stop_requested_.store(true, std::memory_order_release);  // publishes the linger to run()
    poller_.wake();
  }

 private:
  using Id = std::uint64_t;

  void take_turn();
  void accept_waiting();
  bool make_room();
  void welcome(os::Fd fd);
  void drop(Id id);

  void serve(Id id);
  bool read(Connection& connection);
  bool answer_requests(Id id, Connection& connection);
  bool answer(Id id, Connection& connection, Request& request);
  void answer_released();
  void send_answers(Id id);
  bool flush(Id id, Connection& connection);

  void begin_stop();
  Nanoseconds sleep_limit() const;

  os::Poller poller_;
  os::Fd listener_;
  SteadyClock clock_;
  StoreState state_;
  std::map<Id, Connection> connections_;
  std::set<Id> strangers_;  // connections not introduced; ids grow, so the first is the oldest
  Id next_id_ = kListenerToken + 1;
  Id served_ = kListenerToken;
  bool listening_ = true;
  std::array<std::byte, kReadBytes> buffer_;
  std::optional<TimePoint> stop_at_;
  std::atomic<bool> stop_requested_{false};
  std::atomic<Nanoseconds::rep> linger_nanoseconds_{0};
};

void TcpStoreServer::Loop::run() {
  while (!stop_at_ || (clock_.now() < *stop_at_ && !connections_.empty())) {
    try {
      take_turn();
    } catch (const std::bad_alloc&) {
      if (served_ != kListenerToken) drop(served_);
    }
  }
}

// Without memory the connection that it was for is dropped.
void TcpStoreServer::Loop::take_turn() {
  for (const auto& event : poller_.wait(sleep_limit())) {
    served_ = event.token;
    if (event.token == kListenerToken) {
      accept_waiting();
    } else {
      serve(event.token);
    }
  }
  answer_released();
  if (!stop_at_ && stop_requested_.load(std::memory_order_acquire)) begin_stop();
}

Nanoseconds TcpStoreServer::Loop::sleep_limit() const { return stop_at_ ? *stop_at_ - clock_.now() : kLongSleep; }

void TcpStoreServer::Loop::begin_stop() {
  stop_at_ = saturating_add(clock_.now(), Nanoseconds(linger_nanoseconds_.load(std::memory_order_relaxed)));
  listener_.reset();
  listening_ = false;
  while (!strangers_.empty()) drop(*strangers_.begin());
  for (const Id id : state_.waiting()) {
    state_.cancel(id);
    append_integer(connections_.at(id).answers, kServerEnds);
    send_answers(id);
  }
}

void TcpStoreServer::Loop::accept_waiting() {
  for (int i = 0; i < kAcceptsPerTurn && listening_; ++i) {
    auto accepted = os::accept_connection(listener_);
    if (!accepted && make_room()) continue;
    if (!accepted || !*accepted) return;
    welcome(std::move(**accepted));
  }
}

// No descriptors left: a stranger's, or wait until someone leaves.
bool TcpStoreServer::Loop::make_room() {
  if (!strangers_.empty()) {
    drop(*strangers_.begin());
    return true;
  }
  log(LogLevel::warning, "the store is out of file descriptors (raise ulimit -n)");
  poller_.forget(listener_.get());
  listening_ = false;
  return false;
}

void TcpStoreServer::Loop::welcome(os::Fd fd) {
  const Id id = next_id_++;
  if (!os::set_no_delay(fd) || !poller_.watch(fd.get(), id)) return;
  connections_[id].fd = std::move(fd);
  strangers_.insert(id);
  serve(id);
  if (strangers_.size() > kMaxStrangers) drop(*strangers_.begin());
}

void TcpStoreServer::Loop::drop(Id id) {
  state_.cancel(id);
  strangers_.erase(id);
  connections_.erase(id);
  if (!listening_ && listener_.valid()) listening_ = poller_.watch(listener_.get(), kListenerToken).ok();
}

void TcpStoreServer::Loop::serve(Id id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  if (!read(connection) || !answer_requests(id, connection) || !flush(id, connection)) drop(id);
}

// False at end of file or failure.
bool TcpStoreServer::Loop::read(Connection& connection) {
  const os::IoResult got = os::read_some(connection.fd.get(), buffer_);
  connection.received.append(reinterpret_cast<const char*>(buffer_.data()), got.bytes);
  return !got.lost();
}

// Answers all complete requests. False if one of them breaks the protocol. A stranger's first byte
// decides, so that no more than one read of his is ever kept.
bool TcpStoreServer::Loop::answer_requests(Id id, Connection& connection) {
  std::size_t taken = 0;
  if (connection.received.empty()) return true;
  if (!connection.introduced && Query{static_cast<std::uint8_t>(connection.received[0])} != Query::validate)
    return false;
  for (;;) {
    auto parsed = parse_request(std::string_view(connection.received).substr(taken));
    if (!parsed) return false;
    if (parsed->bytes == 0) break;
    taken += parsed->bytes;
    if (!answer(id, connection, parsed->request)) return false;
    if (connection.answers.size() > kMaxUnreadAnswerBytes) return false;
  }
  connection.received.erase(0, taken);
  return true;
}

bool TcpStoreServer::Loop::answer(Id id, Connection& connection, Request& request) {
  if (connection.introduced == (request.query == Query::validate)) return false;
  std::string& answers = connection.answers;
  switch (request.query) {
    case Query::validate:
      strangers_.erase(id);
      connection.introduced = true;
      return request.number == kStoreMagic;
    case Query::set: return state_.set(request.keys[0], std::move(request.value)).ok();
    case Query::get: {
      const auto value = state_.get(request.keys[0]);
      if (value) append_string(answers, *value);
      return value.has_value();
    }
    case Query::add: {
      const auto sum = state_.add(request.keys[0], request.number);
      if (sum) append_integer(answers, sum.value());
      return sum.ok();
    }
    case Query::check: append_integer(answers, state_.has_all(request.keys) ? kReady : kNotReady); return true;
    case Query::wait:
      if (!state_.wait(id, request.keys)) {
        append_integer(answers, kReady);
      } else if (stop_at_) {
        state_.cancel(id);
        append_integer(answers, kServerEnds);
      }
      return true;
    case Query::cancel_wait:
      state_.cancel(id);
      append_integer(answers, kWaitCancelled);
      return true;
    case Query::ping: append_integer(answers, static_cast<std::uint32_t>(request.number)); return true;
  }
  return false;
}

void TcpStoreServer::Loop::answer_released() {
  for (const Id id : state_.take_released()) {
    append_integer(connections_.at(id).answers, kReady);
    send_answers(id);
  }
}

void TcpStoreServer::Loop::send_answers(Id id) {
  if (!flush(id, connections_.at(id))) drop(id);
}

// Sends what the socket takes now and asks to be told when it takes more. False on failure.
bool TcpStoreServer::Loop::flush(Id id, Connection& connection) {
  std::size_t sent = 0;
  while (sent < connection.answers.size()) {
    const auto rest = std::as_bytes(std::span(connection.answers)).subspan(sent);
    const os::IoResult io = os::write_some(connection.fd.get(), rest);
    if (io.lost()) return false;
    if (io.would_block) break;
    sent += io.bytes;
  }
  connection.answers.erase(0, sent);
  return poller_.watch(connection.fd.get(), id, !connection.answers.empty()).ok();
}

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start(const std::string& address, std::uint16_t port) {
  auto listener = os::listen_tcp(address, port);
  if (!listener) return listener.failure();
  auto bound_port = os::local_port(*listener);
  if (!bound_port) return bound_port.failure();
  return serve(std::move(*listener), *bound_port);
}

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start_local(const std::string& name) {
  auto listener = os::listen_unix_abstract(name);
  if (!listener) return listener.failure();
  return serve(std::move(*listener), 0);
}

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::serve(os::Fd listener, std::uint16_t port) {
  auto poller = os::Poller::create();
  if (!poller) return poller.failure();
  QCCL_TRY(poller->watch(listener.get(), kListenerToken));
  auto loop = std::make_unique<Loop>(std::move(*poller), std::move(listener));
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(loop), port));
}

TcpStoreServer::TcpStoreServer(std::unique_ptr<Loop> loop, std::uint16_t port)
    : loop_(std::move(loop)), port_(port), fork_generation_(os::fork_generation()) {
  thread_ = os::start_thread("qccl-store", [this] { loop_->run(); });
}

TcpStoreServer::~TcpStoreServer() { stop(Nanoseconds::zero()); }

void TcpStoreServer::stop(Nanoseconds linger) {
  if (!thread_.joinable()) return;
  if (fork_generation_ != os::fork_generation()) {
    thread_.detach();
    return;
  }
  loop_->request_stop(linger);
  thread_.join();
}

}  // namespace qccl::rendezvous
