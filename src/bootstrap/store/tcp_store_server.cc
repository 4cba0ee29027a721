#include "bootstrap/store/tcp_store_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <vector>

#include "base/log.h"
#include "bootstrap/meeting/answer_queue.h"
#include "bootstrap/store/byte_reader.h"
#include "bootstrap/store/store_protocol.h"
#include "bootstrap/store/store_state.h"
#include "os/fork_list.h"
#include "os/limits.h"
#include "os/net/poller.h"
#include "os/net/socket.h"
#include "os/net/stream.h"
#include "os/thread.h"

namespace qccl::bootstrap {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
// Longer than any request of the protocol.
constexpr std::size_t kMaxAnyRequestBytes = kMaxValueBytes + (kMaxKeysPerQuery + 1) * (kMaxKeyBytes + 16);
constexpr int kAcceptsPerTurn = 64;  // per turn; then connected clients are served
constexpr std::uint64_t kFewestStrangers = 16;
constexpr Nanoseconds kLongSleep = std::chrono::hours(1);
constexpr std::uint64_t kListenerToken = 0;

// own: rank 0's connection. member: has stored something for the job.
enum class Standing : std::uint8_t { stranger, member, own };

struct Connection {
  os::Fd fd;
  std::string address;  // "" on a unix socket
  Standing standing = Standing::stranger;
  bool introduced = false;
  std::string received;
  AnswerQueue answers;  // not yet taken by the client
};

// Rank 0 needs three descriptors for each other rank: one for the store and two for the mesh.
std::size_t most_strangers(const std::optional<JobKeys>& keys) {
  const std::uint64_t world = keys ? static_cast<std::uint64_t>(keys->world()) : 0;
  const std::uint64_t spare = os::spare_files();
  const std::uint64_t share = (spare - std::min(spare, 3 * world)) / 4;
  const std::uint64_t most = TcpStoreServer::kMaxStrangers;
  return static_cast<std::size_t>(world + std::clamp(share, kFewestStrangers, most));
}

template <class T>
std::string integer_bytes(T value) {
  std::string bytes;
  append_integer(bytes, value);
  return bytes;
}

}  // namespace

struct TcpStoreServer::Door {
  os::Fd listener;
  bool local = false;
  std::uint16_t port = 0;
};

// Everything the thread owns. Other threads call only request_stop().
class TcpStoreServer::Loop {
 public:
  Loop(os::Poller poller, Door door, std::optional<JobKeys> keys)
      : poller_(std::move(poller)),
        listener_(std::move(door.listener)),
        local_(door.local),
        keys_(std::move(keys)),
        max_strangers_(most_strangers(keys_)) {}

  Status listen(os::Fd own);  // before run()
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
  bool is_of_this_user(const os::Fd& fd);
  void drop(Id id);
  void drop_stranger();
  void leave_strangers(Id id, Connection& connection);

  bool is_limited(const Connection& connection) const { return keys_ && connection.standing != Standing::own; }
  void serve(Id id);
  bool take_turn(Id id, Connection& connection);
  bool read(Connection& connection);
  bool answer_requests(Id id, Connection& connection);
  bool answer(Id id, Connection& connection, StoreRequest& request);
  bool set(Id id, Connection& connection, StoreRequest& request);
  bool add(Connection& connection, const StoreRequest& request);
  void answer_released();
  void end_wait(Id id, std::uint8_t answer);
  bool watch(Id id, Connection& connection);

  void begin_stop();
  void turn_away();
  Nanoseconds sleep_limit() const;

  os::Poller poller_;
  os::Fd listener_;
  const bool local_;  // a unix socket
  const std::optional<JobKeys> keys_;
  const std::size_t max_strangers_;
  SteadyClock clock_;
  StoreState state_;
  std::map<Id, Connection> connections_;
  std::map<std::string, std::set<Id>> strangers_;  // by address; ids grow, so the first is the oldest
  std::size_t stranger_count_ = 0;
  Id next_id_ = kListenerToken + 1;
  Id served_ = kListenerToken;  // the connection being served in this turn
  bool listening_ = true;
  bool warned_of_user_ = false;
  std::array<std::byte, kReadBytes> buffer_;
  std::optional<TimePoint> stop_at_;
  std::atomic<bool> stop_requested_{false};
  std::atomic<Nanoseconds::rep> linger_nanoseconds_{0};
};

Status TcpStoreServer::Loop::listen(os::Fd own) {
  QCCL_TRY(poller_.watch(listener_.get(), kListenerToken));
  const Id id = next_id_++;
  QCCL_TRY(poller_.watch(own.get(), id));
  Connection& connection = connections_[id];
  connection.fd = std::move(own);
  connection.standing = Standing::own;
  connection.introduced = true;
  return {};
}

void TcpStoreServer::Loop::run() {
  while (!stop_at_ || (clock_.now() < *stop_at_ && !connections_.empty())) {
    served_ = kListenerToken;
    try {
      take_turn();
    } catch (const std::bad_alloc&) {
      drop(served_);
      poller_.wake();  // for the events that the turn did not reach
    }
  }
  connections_.clear();  // connections that could not be answered see end of file
}

// If memory runs out, the connection being served is dropped.
void TcpStoreServer::Loop::take_turn() {
  for (const auto& event : poller_.wait(sleep_limit())) {
    if (event.token == kListenerToken) {
      accept_waiting();
    } else {
      serve(event.token);
    }
  }
  answer_released();
  if (!stop_at_ && stop_requested_.load(std::memory_order_acquire)) begin_stop();
  if (stop_at_) turn_away();
}

Nanoseconds TcpStoreServer::Loop::sleep_limit() const { return stop_at_ ? *stop_at_ - clock_.now() : kLongSleep; }

void TcpStoreServer::Loop::begin_stop() {
  stop_at_ = saturating_add(clock_.now(), Nanoseconds(linger_nanoseconds_.load(std::memory_order_relaxed)));
  listener_.reset();
  listening_ = false;
}

void TcpStoreServer::Loop::turn_away() {
  while (const auto id = state_.any_waiting()) end_wait(*id, kServerEnds);
  while (stranger_count_ > 0) drop_stranger();
}

void TcpStoreServer::Loop::accept_waiting() {
  for (int i = 0; i < kAcceptsPerTurn && listening_; ++i) {
    served_ = kListenerToken;
    auto accepted = os::accept_connection(listener_);
    if (!accepted && make_room()) continue;
    if (!accepted || !*accepted) return;
    welcome(std::move(**accepted));
  }
}

// Out of descriptors: frees a stranger's, or stops accepting until a client leaves.
bool TcpStoreServer::Loop::make_room() {
  if (stranger_count_ > 0) {
    drop_stranger();
    return true;
  }
  poller_.forget(listener_.get());
  listening_ = false;
  log(LogLevel::warning, "the store is out of file descriptors (raise ulimit -n)");
  return false;
}

void TcpStoreServer::Loop::welcome(os::Fd fd) {
  const Id id = next_id_++;
  served_ = id;
  if (local_ && !is_of_this_user(fd)) return;
  if (!os::set_no_delay(fd) || !poller_.watch(fd.get(), id)) return;
  Connection& connection = connections_[id];
  if (!local_) connection.address = os::peer_address(fd);
  connection.fd = std::move(fd);
  strangers_[connection.address].insert(id);
  ++stranger_count_;
  serve(id);
  if (stranger_count_ > max_strangers_) drop_stranger();
}

// Logs the first connection of another user, not a thousand of them.
bool TcpStoreServer::Loop::is_of_this_user(const os::Fd& fd) {
  const Status same = os::check_same_user(fd);
  if (same.ok()) return true;
  if (!warned_of_user_) log(LogLevel::warning, "the store refused a connection: " + same.error().message);
  warned_of_user_ = true;
  return false;
}

// Works even if welcome() was interrupted; does nothing if there is no such connection. Allocates nothing.
void TcpStoreServer::Loop::drop(Id id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  leave_strangers(id, found->second);
  state_.cancel(id);
  connections_.erase(found);
  if (!listening_ && listener_.valid()) listening_ = poller_.watch(listener_.get(), kListenerToken).ok();
}

// Drops the oldest stranger of the address with the most: a crowd from one address displaces only itself.
void TcpStoreServer::Loop::drop_stranger() {
  const auto less = [](const auto& one, const auto& other) { return one.second.size() < other.second.size(); };
  const auto crowd = std::max_element(strangers_.begin(), strangers_.end(), less);
  drop(*crowd->second.begin());
}

// The connection stops being a stranger.
void TcpStoreServer::Loop::leave_strangers(Id id, Connection& connection) {
  if (connection.standing != Standing::stranger) return;
  connection.standing = Standing::member;
  const auto found = strangers_.find(connection.address);
  if (found == strangers_.end()) return;
  stranger_count_ -= found->second.erase(id);
  if (found->second.empty()) strangers_.erase(found);
}

void TcpStoreServer::Loop::serve(Id id) {
  served_ = id;
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  if (!take_turn(id, found->second)) drop(id);
}

// First answers earlier requests: nothing is read while an answer waits to be taken.
bool TcpStoreServer::Loop::take_turn(Id id, Connection& connection) {
  if (!connection.answers.send(connection.fd) || !answer_requests(id, connection)) return false;
  if (connection.answers.empty() && (!read(connection) || !answer_requests(id, connection))) return false;
  return watch(id, connection);
}

// False at end of file, on failure, and if a request does not end.
bool TcpStoreServer::Loop::read(Connection& connection) {
  const std::size_t limit = is_limited(connection) ? JobKeys::kMaxRequestBytes : kMaxAnyRequestBytes;
  const std::size_t room = limit - std::min(limit, connection.received.size());
  if (room == 0) return false;
  const os::IoResult got = os::read_some(connection.fd.get(), Bytes(buffer_).first(std::min(room, kReadBytes)));
  connection.received.append(reinterpret_cast<const char*>(buffer_.data()), got.bytes);
  return !got.lost();
}

// Answers complete requests until the client does not take an answer at once. False if a request breaks the protocol. A
// stranger's first byte must be right, so that no more than one read from it is ever kept.
bool TcpStoreServer::Loop::answer_requests(Id id, Connection& connection) {
  std::size_t taken = 0;
  if (connection.received.empty()) return true;
  if (!connection.introduced && Query{static_cast<std::uint8_t>(connection.received[0])} != Query::validate)
    return false;
  while (connection.answers.empty()) {
    auto parsed = parse_request(std::string_view(connection.received).substr(taken));
    if (!parsed) return false;
    if (parsed->bytes == 0) break;
    taken += parsed->bytes;
    if (!answer(id, connection, parsed->request) || !connection.answers.send(connection.fd)) return false;
  }
  connection.received.erase(0, taken);
  return true;
}

bool TcpStoreServer::Loop::answer(Id id, Connection& connection, StoreRequest& request) {
  if (connection.introduced == (request.query == Query::validate)) return false;
  AnswerQueue& answers = connection.answers;
  switch (request.query) {
    case Query::validate: connection.introduced = true; return request.number == kStoreMagic;
    case Query::set: return set(id, connection, request);
    case Query::get: {
      const auto value = state_.get(request.keys[0]);
      if (value == nullptr) return false;
      answers.add(integer_bytes<std::uint64_t>(value->size()));
      answers.add(value);
      return true;
    }
    case Query::add: return add(connection, request);
    case Query::check: answers.add(integer_bytes(state_.has_all(request.keys) ? kReady : kNotReady)); return true;
    case Query::wait:
      if (!state_.wait(id, request.keys)) {
        answers.add(integer_bytes(kReady));
      } else if (stop_at_) {
        state_.cancel(id);
        answers.add(integer_bytes(kServerEnds));
      }
      return true;
    case Query::cancel_wait:
      state_.cancel(id);
      answers.add(integer_bytes(kWaitCancelled));
      return true;
    case Query::ping: answers.add(integer_bytes(static_cast<std::uint32_t>(request.number))); return true;
  }
  return false;
}

bool TcpStoreServer::Loop::set(Id id, Connection& connection, StoreRequest& request) {
  const std::string& key = request.keys[0];
  if (is_limited(connection)) {
    if (!keys_->may_set(key, request.value)) return false;
    if (state_.has(key)) return true;
  }
  leave_strangers(id, connection);
  return state_.set(key, std::move(request.value)).ok();
}

bool TcpStoreServer::Loop::add(Connection& connection, const StoreRequest& request) {
  const std::string& key = request.keys[0];
  if (is_limited(connection) && !keys_->may_add(key, request.number)) return false;
  const bool only_looks = is_limited(connection) && request.number == 0 && !state_.has(key);
  const Result<std::int64_t> sum = only_looks ? 0 : state_.add(key, request.number);
  if (sum) connection.answers.add(integer_bytes(sum.value()));
  return sum.ok();
}

void TcpStoreServer::Loop::answer_released() {
  while (const auto id = state_.any_released()) end_wait(*id, kReady);
}

// The wait ends once its answer is on its way: if memory runs out before, drop() ends it.
void TcpStoreServer::Loop::end_wait(Id id, std::uint8_t answer) {
  served_ = id;
  Connection& connection = connections_.at(id);
  connection.answers.add(integer_bytes(answer));
  if (!connection.answers.send(connection.fd) || !watch(id, connection)) return drop(id);
  state_.cancel(id);
}

// Waits for the socket to take more, or to deliver more. False on failure.
bool TcpStoreServer::Loop::watch(Id id, Connection& connection) {
  if (connection.answers.empty()) return poller_.watch(connection.fd.get(), id).ok();
  return poller_.watch_writable(connection.fd.get(), id).ok();
}

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start(const std::string& address, std::uint16_t port,
                                                              std::optional<JobKeys> keys) {
  auto listener = os::listen_tcp(address, port);
  if (!listener) return listener.failure();
  auto bound_port = os::local_port(*listener);
  if (!bound_port) return bound_port.failure();
  return serve({.listener = std::move(*listener), .port = *bound_port}, std::move(keys));
}

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start_local(const std::string& name,
                                                                    std::optional<JobKeys> keys) {
  auto listener = os::listen_unix_abstract(name);
  if (!listener) return listener.failure();
  return serve({.listener = std::move(*listener), .local = true}, std::move(keys));
}

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::serve(Door door, std::optional<JobKeys> keys) {
  auto poller = os::Poller::create();
  if (!poller) return poller.failure();
  auto own = os::socket_pair();
  if (!own) return own.failure();
  const std::uint16_t port = door.port;
  auto loop = std::make_unique<Loop>(std::move(*poller), std::move(door), std::move(keys));
  QCCL_TRY(loop->listen(std::move(own->first)));
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(loop), port, std::move(own->second)));
}

TcpStoreServer::TcpStoreServer(std::unique_ptr<Loop> loop, std::uint16_t port, os::Fd own_client)
    : loop_(std::move(loop)), port_(port), own_client_(std::move(own_client)) {
  thread_ = os::start_thread("qccl-store", [this] { loop_->run(); });
}

TcpStoreServer::~TcpStoreServer() { stop(Nanoseconds::zero()); }

void TcpStoreServer::stop(Nanoseconds linger) {
  if (!thread_.joinable()) return;
  if (mark_.inherited()) {
    thread_.detach();
    return;
  }
  own_client_.reset();
  loop_->request_stop(linger);
  thread_.join();
}

}  // namespace qccl::bootstrap
