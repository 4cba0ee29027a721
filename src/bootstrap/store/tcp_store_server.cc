#include "bootstrap/store/tcp_store_server.h"

#include <algorithm>
#include <atomic>
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

}  // namespace

// Everything the thread owns. Other threads use only wake() and stop().
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
        max_strangers_(most_strangers(rules_.get())),
        strangers_(stranger_limit) {}

  // before run()
  Status listen(os::Fd own) {
    QCCL_TRY(poller_.watch(listener_.get(), kListenerToken));
    const Id id = next_id_++;
    QCCL_TRY(poller_.watch(own.get(), id));
    StoreClient& client = clients_[id];
    client.id = id;
    client.stream = std::move(own);
    client.standing = StoreClient::Standing::own;
    client.is_introduced = true;
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

  void wake() { poller_.wake(); }
  void stop(Nanoseconds linger) {
    linger_ = linger;
    should_stop_ = true;
    poller_.wake();
  }

 private:
  using Id = StoreClient::Id;  // also the Poller's token

  void take_turn() {
    const TimePoint next = std::min(stop_at_.value_or(kForever), strangers_.next_deadline());
    for (const auto& event : poller_.wait(std::min(next - clock_.now(), kLongSleep))) {
      if (event.token == kListenerToken) {
        accept_waiting();
      } else if (const auto found = clients_.find(event.token); found != clients_.end()) {
        serve(found->second);
      }
    }
    served_ = kListenerToken;
    if (rules_ != nullptr) rules_->take_turn(state_);
    while (const auto id = state_.any_released()) end_wait(*id, kReady);
    drop_overdue();
    if (!stop_at_ && should_stop_) {
      stop_at_ = saturating_add(clock_.now(), linger_);
      listener_.reset();
      is_listening_ = false;
      service_.refuse_waits();
    }
    if (!stop_at_) return;
    while (const auto id = state_.any_waiting()) end_wait(*id, kServerEnds);
    while (const auto id = strangers_.to_displace()) drop(*id);
  }

  // A stranger that waits is a rank that has come before rank 0 has begun, for all that this job can tell.
  void drop_overdue() {
    const TimePoint now = clock_.now();
    while (const auto id = strangers_.overdue(now)) {
      const bool stays = state_.is_waiting(*id) || (rules_ != nullptr && rules_->may_stay(*id));
      stays ? strangers_.extend(*id, now) : drop(*id);
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
    if (const auto stranger = strangers_.to_displace()) {
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
    StoreClient& client = clients_[id];
    client.id = id;
    client.address = is_local_ ? "" : os::peer_address(socket);
    client.stream = std::move(socket);
    strangers_.add(id, client.address, clock_.now());
    client.needs_key = secrets_.has_key();
    serve(client);
    if (strangers_.count() > max_strangers_) drop(*strangers_.to_displace());
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
    StoreClient& client = clients_.at(id);
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
    const auto client = clients_.find(id);
    if (client == clients_.end()) return;
    state_.cancel(id);
    service_.execute_will(client->second);
    if (rules_ != nullptr) rules_->has_ended(id, state_);
    strangers_.forget(id);
    clients_.erase(client);
    if (!is_listening_ && listener_.valid()) is_listening_ = poller_.watch(listener_.get(), kListenerToken).ok();
  }

  os::Poller poller_;
  os::Fd listener_;
  const bool is_local_;
  const std::shared_ptr<StoreRules> rules_;
  const StoreSecrets secrets_;
  SteadyClock clock_;
  StoreState state_;
  const std::size_t max_strangers_;
  Strangers strangers_;
  std::map<Id, StoreClient> clients_;
  StoreService service_{strangers_, state_, rules_.get(), secrets_};
  Id next_id_ = kListenerToken + 1;
  Id served_ = kListenerToken;  // the client being served in this turn
  bool is_listening_ = true;
  bool warned_of_user_ = false;
  Nanoseconds linger_{};                  // set before
  std::atomic<bool> should_stop_{false};  // by another thread: release and acquire, for linger_
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

void TcpStoreServer::wake() { loop_->wake(); }

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
  loop_->stop(linger);
  thread_.join();
}

}  // namespace qccl::bootstrap
