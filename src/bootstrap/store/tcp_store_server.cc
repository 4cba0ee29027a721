#include "bootstrap/store/tcp_store_server.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "base/log.h"
#include "bootstrap/store/store_service.h"
#include "os/net/poller.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

constexpr int kAcceptsPerTurn = 64;  // then connected clients are served
constexpr std::uint64_t kFewestStrangers = 16;
constexpr Nanoseconds kLongSleep = std::chrono::hours(1);
constexpr std::uint64_t kListenerToken = 0;

// Rank 0 needs three descriptors for each peer: one for the store and two for the mesh.
std::size_t most_strangers(const StoreRules* rules) {
  const std::uint64_t world = rules == nullptr ? 0 : rules->expected_clients();
  const std::uint64_t spare = os::spare_files();
  const std::uint64_t share = (spare - std::min(spare, 3 * world)) / 4;
  const std::uint64_t most = TcpStoreServer::kMaxStrangers;
  return static_cast<std::size_t>(world + std::clamp(share, kFewestStrangers, most));
}

// What other threads ask of the server's. Thread-safe.
class Inbox {
 public:
  explicit Inbox(os::Poller& poller) : poller_(poller) {}

  void stop(Nanoseconds linger) {
    {
      const std::lock_guard lock(mutex_);
      linger_ = linger;
    }
    poller_.wake();
  }
  void add(os::Fd own) {
    {
      const std::lock_guard lock(mutex_);
      own_.push_back(std::move(own));
    }
    poller_.wake();
  }

  // How long to serve on; empty: it need not stop.
  std::optional<Nanoseconds> linger() const {
    const std::lock_guard lock(mutex_);
    return linger_;
  }
  // A new client of this process; invalid if there is none.
  os::Fd take_own() {
    const std::lock_guard lock(mutex_);
    if (own_.empty()) return {};
    os::Fd own = std::move(own_.back());
    own_.pop_back();
    return own;
  }

 private:
  os::Poller& poller_;
  mutable std::mutex mutex_;  // guards what follows
  std::optional<Nanoseconds> linger_;
  std::vector<os::Fd> own_;
};

}  // namespace

// Everything the thread owns. Other threads use only its inbox().
class TcpStoreServer::Loop {
 public:
  Loop(os::Poller poller, os::Fd listener, bool is_local, std::shared_ptr<StoreRules> rules, StoreSecrets secrets,
       Nanoseconds stranger_limit)
      : poller_(std::move(poller)),
        listener_(std::move(listener)),
        is_local_(is_local),
        rules_(std::move(rules)),
        secrets_(std::move(secrets)),
        state_(rules_ == nullptr ? StoreState::kMaxBytes : rules_->most_bytes()),
        clients_(most_strangers(rules_.get()), stranger_limit) {}

  // before run()
  Status listen(os::Fd own) {
    QCCL_TRY(poller_.watch(listener_.get(), kListenerToken));
    const Id id = next_id_++;
    QCCL_TRY(poller_.watch(own.get(), id));
    clients_.add_own(id, std::move(own)).is_introduced = true;
    QCCL_TRY(state_.set(wire_key(kServesWills), ""));
    return rules_ == nullptr ? Status() : state_.set(wire_key(kServesAwait), "");
  }

  // If memory runs out, the client being served is dropped.
  void run() {
    while (!stop_at_ || (clock_.now() < *stop_at_ && !clients_.empty())) {
      served_ = kListenerToken;
      try {
        take_turn();
      } catch (const std::bad_alloc&) {
        drop(served_);
        poller_.wake();  // for the events that the turn did not reach
      }
    }
    clients_.clear();  // clients that could not be answered see end of file
  }

  Inbox& inbox() { return inbox_; }

 private:
  using Id = StoreClient::Id;  // also the Poller's token

  void take_turn() {
    const TimePoint next = std::min(stop_at_.value_or(kForever), clients_.strangers().next_deadline());
    for (const auto& event : poller_.wait(std::min(next - clock_.now(), kLongSleep))) {
      if (event.token == kListenerToken) {
        accept_waiting();
      } else if (StoreClient* client = clients_.find(event.token)) {
        serve(*client);
      }
    }
    welcome_own();
    while (const auto id = state_.any_released()) end_wait(*id, kReady);
    drop_overdue();
    const auto linger = inbox_.linger();
    if (!stop_at_ && linger) {
      stop_at_ = saturating_add(clock_.now(), *linger);
      listener_.reset();
      is_listening_ = false;
      service_.refuse_waits();
    }
    if (!stop_at_) return;
    while (const auto id = state_.any_waiting()) end_wait(*id, kServerEnds);
    while (const auto id = clients_.strangers().to_displace()) drop(*id);
  }

  // A stranger that waits is a rank that has come before rank 0 has begun, for all that this job can tell.
  void drop_overdue() {
    Strangers& strangers = clients_.strangers();
    const TimePoint now = clock_.now();
    while (const auto id = strangers.overdue(now)) {
      const bool stays = state_.is_waiting(*id) || (rules_ != nullptr && rules_->may_stay(*id));
      stays ? strangers.extend(*id, now) : drop(*id);
    }
  }

  void accept_waiting() {
    for (int i = 0; i < kAcceptsPerTurn && is_listening_; ++i) {
      served_ = kListenerToken;
      auto accepted = os::accept_connection(listener_);
      if (!accepted && make_room()) continue;
      if (!accepted || !*accepted) return;
      welcome(std::move(**accepted));
    }
  }

  // Out of descriptors: frees a stranger's, or stops accepting until a client leaves.
  bool make_room() {
    if (const auto stranger = clients_.strangers().to_displace()) {
      drop(*stranger);
      return true;
    }
    poller_.forget(listener_.get());
    is_listening_ = false;
    log(LogLevel::warning, "the store is out of file descriptors (raise ulimit -n)");
    return false;
  }

  void welcome(os::Fd socket) {
    const Id id = next_id_++;
    served_ = id;
    if (is_local_ && !is_of_this_user(socket)) return;
    if (!os::set_no_delay(socket) || !poller_.watch(socket.get(), id)) return;
    std::string address = is_local_ ? "" : os::peer_address(socket);
    StoreClient& client = clients_.add_stranger(id, std::move(socket), std::move(address), clock_.now());
    client.needs_key = secrets_.has_key();
    serve(client);
    if (!clients_.has_too_many_strangers()) return;
    if (const auto stranger = clients_.strangers().to_displace()) drop(*stranger);
  }

  void welcome_own() {
    for (os::Fd own = inbox_.take_own(); own.valid(); own = inbox_.take_own()) {
      const Id id = next_id_++;
      served_ = id;
      if (!poller_.watch(own.get(), id)) continue;
      serve(clients_.add_own(id, std::move(own)));
    }
  }

  // Logs the first connection of another user, not a thousand of them.
  bool is_of_this_user(const os::Fd& socket) {
    const Status same = os::check_same_user(socket);
    if (same.ok()) return true;
    if (!warned_of_user_) log(LogLevel::warning, "the store refused a connection: " + same.error().message);
    warned_of_user_ = true;
    return false;
  }

  void serve(StoreClient& client) {
    served_ = client.id;
    if (!service_.serve(client) || !watch(client)) drop(client.id);
  }

  // The wait ends once its answer is on its way: if memory runs out before, drop() ends it.
  void end_wait(Id id, std::uint8_t answer) {
    served_ = id;
    StoreClient& client = *clients_.find(id);
    const bool is_answered = service_.answer_wait(client, answer);
    if (!is_answered || !client.answers.send(client.stream) || !watch(client)) return drop(id);
    state_.cancel(id);
  }

  // Waits for the socket to take more, or to deliver more. False on failure.
  bool watch(const StoreClient& client) {
    if (client.answers.empty()) return poller_.watch(client.stream.get(), client.id).ok();
    return poller_.watch_writable(client.stream.get(), client.id).ok();
  }

  // Works even if welcome() was interrupted; does nothing if there is no such client. Needs no memory.
  void drop(Id id) {
    StoreClient* const client = clients_.find(id);
    if (client == nullptr) return;
    state_.cancel(id);
    service_.execute_will(*client);
    if (rules_ != nullptr) rules_->has_ended(id, state_);
    clients_.erase(id);
    if (!is_listening_ && listener_.valid()) is_listening_ = poller_.watch(listener_.get(), kListenerToken).ok();
  }

  os::Poller poller_;
  Inbox inbox_{poller_};
  os::Fd listener_;
  const bool is_local_;
  const std::shared_ptr<StoreRules> rules_;
  const StoreSecrets secrets_;
  SteadyClock clock_;
  StoreState state_;
  StoreClients clients_;
  StoreService service_{clients_, state_, rules_.get(), secrets_};
  Id next_id_ = kListenerToken + 1;
  Id served_ = kListenerToken;  // the client being served in this turn
  bool is_listening_ = true;
  bool warned_of_user_ = false;
  std::optional<TimePoint> stop_at_;
};

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start(const std::string& address, std::uint16_t port,
                                                              std::shared_ptr<StoreRules> rules, StoreSecrets secrets,
                                                              Nanoseconds stranger_limit) {
  QCCL_ASSIGN(auto listener, os::listen_tcp(address, port));
  QCCL_ASSIGN(const auto bound_port, os::local_port(listener));
  return serve(std::move(listener), bound_port, std::move(rules), std::move(secrets), stranger_limit);
}

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start_local(const std::string& name,
                                                                    std::shared_ptr<StoreRules> rules) {
  QCCL_ASSIGN(auto listener, os::listen_unix_abstract(name));
  return serve(std::move(listener), 0, std::move(rules), {}, kStrangerLimit);
}

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::serve(os::Fd listener, std::uint16_t port,
                                                              std::shared_ptr<StoreRules> rules, StoreSecrets secrets,
                                                              Nanoseconds stranger_limit) {
  QCCL_ASSIGN(auto poller, os::Poller::create());
  QCCL_ASSIGN(auto own, os::socket_pair());
  auto loop = std::make_unique<Loop>(std::move(poller), std::move(listener), port == 0, std::move(rules),
                                     std::move(secrets), stranger_limit);
  QCCL_TRY(loop->listen(std::move(own.first)));
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(loop), port, std::move(own.second)));
}

Result<os::Fd> TcpStoreServer::connect_own() {
  QCCL_ASSIGN(auto own, os::socket_pair());
  loop_->inbox().add(std::move(own.first));
  return std::move(own.second);
}

TcpStoreServer::TcpStoreServer(std::unique_ptr<Loop> loop, std::uint16_t port, os::Fd own_client)
    : loop_(std::move(loop)), port_(port), own_client_(std::move(own_client)) {
  thread_ = os::start_thread("qccl-store", [this] { loop_->run(); });
}

TcpStoreServer::~TcpStoreServer() { stop(Nanoseconds::zero()); }

void TcpStoreServer::stop(Nanoseconds linger) {
  if (!thread_.joinable()) return;
  if (mark_.inherited()) {
    // The parent's thread can be neither joined nor detached here: its handle is never destroyed.
    alignas(std::thread) std::byte handle[sizeof(std::thread)];
    new (handle) std::thread(std::move(thread_));
    return;
  }
  own_client_.reset();
  loop_->inbox().stop(linger);
  thread_.join();
}

}  // namespace qccl::bootstrap
