#include "bootstrap/mesh/full_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/digest/digest.h"
#include "base/log.h"
#include "base/text.h"
#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/mesh/address_card.h"
#include "bootstrap/mesh/connectors.h"
#include "os/net/poller.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

// Ranks look for failures soon, then less and less often.
constexpr Nanoseconds kFirstLook = std::chrono::milliseconds(10);
constexpr Nanoseconds kMostBetweenLooks = std::chrono::milliseconds(200);

std::size_t slot(int rank) { return static_cast<std::size_t>(rank); }

// The job, and the attempt to start it.
std::string attempt_of(const LaunchIdentity& launch, const GatheredCards& gathered) {
  return fmt::format("{}/{}/{}/{}", launch.job, launch.restart, gathered.generation, gathered.nonce);
}

// Fills in what the cards of all ranks say about hosts and cores.
void describe_hosts(const std::vector<AddressCard>& cards, int own_rank, PeerSockets& sockets) {
  for (auto card = cards.begin(); card != cards.end(); ++card) {
    const auto first =
        std::find_if(cards.begin(), card, [&](const auto& earlier) { return same_host(earlier, *card); });
    sockets.hosts.push_back(static_cast<int>(first - cards.begin()));
  }
  for (const int host : sockets.hosts) sockets.on_this_host.push_back(host == sockets.hosts[slot(own_rank)]);
  sockets.local_ranks = static_cast<int>(std::ranges::count(sockets.on_this_host, true));

  // Ranks of this machine share its cores, even if they count as several hosts.
  const std::string machine = os::boot_id();
  std::set<std::uint32_t> first_cpus = {cards[slot(own_rank)].first_cpu};
  for (const AddressCard& card : cards) {
    if (&card == &cards[slot(own_rank)] || machine.empty() || !card.boot_id.starts_with(machine)) continue;
    ++sockets.machine_ranks;
    first_cpus.insert(card.first_cpu);
  }
  sockets.machine_cores = std::max(os::available_cpus(), static_cast<int>(first_cpus.size()));
}

// The connections made so far.
class ConnectedPeers {
 public:
  ConnectedPeers(int world, int own_rank, TransportChoice transport)
      : peers_(slot(world)), own_rank_(own_rank), shm_only_(transport == TransportChoice::shm) {}

  // An index for find(): the descriptor of the new connection. Of several with one number the newest stays, the one its
  // dialler kept.
  std::uint64_t add(PeerSocket added) {
    const bool is_tcp = added.kind == SocketKind::tcp;
    Peer& peer = peers_[slot(added.rank)];
    (is_tcp ? peer.tcp[added.index] : peer.local) = std::move(added.socket);
    // The last handshake of a pair says what belongs to it.
    if (added.index == 0 && (is_tcp || shm_only_)) {
      peer.expected_tcp = is_tcp ? added.count : 0;
      peer.expects_local = shm_only_ || added.confirm == ConfirmByte::beside_local;
      peer.is_settled = true;
      if (!peer.expects_local) peer.local.reset();
    }
    return static_cast<std::uint64_t>(added.rank) * kSocketsOfAPeer + (is_tcp ? added.index : wire::kMaxConnections);
  }
  const os::Fd& find(std::uint64_t index) const {
    const Peer& peer = peers_[index / kSocketsOfAPeer];
    const std::uint64_t number = index % kSocketsOfAPeer;
    return (number == wire::kMaxConnections ? peer.local : peer.tcp[number]).socket();
  }
  static int rank_of(std::uint64_t index) { return static_cast<int>(index / kSocketsOfAPeer); }
  // Ranks whose connections are not complete.
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; slot(rank) < peers_.size(); ++rank) {
      if (rank != own_rank_ && !peers_[slot(rank)].is_complete()) ranks.push_back(rank);
    }
    return ranks;
  }
  void take(PeerSockets& sockets) {
    for (Peer& peer : peers_) {
      std::vector<secure::Stream>& tcp = sockets.tcp.emplace_back();
      for (std::size_t i = 0; i < peer.expected_tcp; ++i) tcp.push_back(std::move(peer.tcp[i]));
      sockets.local.push_back(peer.local.take_socket());
    }
  }

 private:
  static constexpr std::uint64_t kSocketsOfAPeer = wire::kMaxConnections + 1;

  struct Peer {
    std::array<secure::Stream, wire::kMaxConnections> tcp;
    secure::Stream local;
    bool is_settled = false;       // the first connections have been made, and say what belongs to them:
    std::size_t expected_tcp = 0;  // TCP connections
    bool expects_local = false;    // a unix socket

    bool is_complete() const {
      const auto expected = std::span(tcp).first(expected_tcp);
      return is_settled && local.valid() == expects_local && std::ranges::all_of(expected, &secure::Stream::valid);
    }
  };
  std::vector<Peer> peers_;  // by rank
  const int own_rank_;
  const bool shm_only_;
};

// One rank's part in building the mesh.
class FullMesh {
 public:
  FullMesh(os::Poller poller, MeshListener listener, GatheredCards gathered, const FullMeshOptions& options,
           const std::function<Status()>& look, const Clock& clock)
      : poller_(std::move(poller)),
        look_(look),
        options_(options),
        clock_(clock),
        rank_(options.launch.rank),
        world_(options.launch.world),
        listener_(std::move(listener)),
        gathered_(std::move(gathered)),
        acceptor_(poller_, clock),
        peers_(world_, rank_, options.transport) {}

  Result<PeerSockets> connect() {
    Status status = start();
    if (status.ok()) status = connect_all();
    if (!status.ok()) return named(rank_, world_, status.error());
    peers_.take(sockets_);
    return std::move(sockets_);
  }

 private:
  // Checks all cards and dials the lower ranks.
  Status start() {
    std::vector<AddressCard> cards;
    for (int rank = 0; rank < world_; ++rank) {
      auto card = decode_card(gathered_.cards[slot(rank)]);
      if (!card) return Failure(card.error().kind, fmt::format("rank {}: {}", rank, card.error().message));
      if (rank != rank_) QCCL_TRY(check_card(listener_.card, rank, *card));
      cards.push_back(std::move(*card));
    }
    describe_hosts(cards, rank_, sockets_);
    sockets_.processes = gathered_.processes;
    const std::string attempt = attempt_of(options_.launch, gathered_);
    sockets_.job = digest(attempt);
    secrets_.emplace(options_.protection, attempt);
    const wire::Hello own{
        .rank = static_cast<std::uint32_t>(rank_), .world = static_cast<std::uint32_t>(world_), .job = sockets_.job};
    ConnectionPolicy policy = options_.connections;
    policy.remote_peers = world_ - sockets_.local_ranks;
    QCCL_TRY(acceptor_.start(std::move(listener_.sockets), own, policy, &*secrets_));
    dialler_.emplace(poller_, clock_, own, policy, &*secrets_);
    for (int rank = 0; rank < rank_; ++rank) {
      const AddressCard& card = cards[slot(rank)];
      dialler_->add({.rank = rank,
                     .unix_name = same_host(listener_.card, card) ? card.unix_name : "",
                     .local_only = options_.transport == TransportChoice::shm,
                     .addresses = card.addresses,
                     .port = card.port});
    }
    next_look_ = saturating_add(clock_.now(), look_again_after_);
    return {};
  }

  Status connect_all() {
    for (;;) {
      const auto missing = peers_.missing();
      if (missing.empty()) return {};
      if (clock_.now() >= options_.deadline) return out_of_time(missing);
      QCCL_TRY(dialler_->turn());
      acceptor_.expire();
      QCCL_TRY(look_for_failures());
      const TimePoint until = std::min({options_.deadline, dialler_->next_turn(), acceptor_.next_turn(), next_look_});
      for (const auto& event : poller_.wait(until - clock_.now())) QCCL_TRY(serve(event));
      QCCL_TRY(keep(acceptor_.take_peers()));
      QCCL_TRY(keep(dialler_->take_peers()));
    }
  }

  Status serve(const os::Poller::Ready& event) {
    const std::uint64_t index = index_of(event.token);
    switch (owner_of(event.token)) {
      case SocketOwner::acceptor: return acceptor_.ready(index);
      case SocketOwner::dialler: return dialler_->ready(index, event.writable);
      case SocketOwner::peer: return check_peer(index);
    }
    return {};
  }

  // A finished connection became readable: its rank has begun to work, or has ended.
  Status check_peer(std::uint64_t index) {
    const int rank = ConnectedPeers::rank_of(index);
    const os::Fd& socket = peers_.find(index);
    if (!socket.valid()) return {};
    if (!os::peer_closed(socket.get())) {
      poller_.forget(socket.get());
      return {};
    }
    QCCL_TRY(look_());
    return failure_about(
        ErrorKind::peer_lost, rank,
        fmt::format("rank {} ({}) ended while ranks were still connecting", rank, sockets_.processes[slot(rank)]));
  }

  Status keep(std::vector<PeerSocket> peers) {
    for (PeerSocket& peer : peers) {
      const std::uint64_t index = peers_.add(std::move(peer));
      if (const os::Fd& socket = peers_.find(index); socket.valid()) {
        QCCL_TRY(poller_.watch(socket.get(), socket_token(SocketOwner::peer, index)));
      }
    }
    return {};
  }

  Status look_for_failures() {
    if (clock_.now() < next_look_) return {};
    look_again_after_ = std::min(2 * look_again_after_, kMostBetweenLooks);
    next_look_ = saturating_add(clock_.now(), look_again_after_);
    return look_();
  }

  Failure out_of_time(const std::vector<int>& missing) {
    std::vector<int> silent;
    std::ranges::copy_if(missing, std::back_inserter(silent), [&](int rank) { return rank > rank_; });
    std::string text = fmt::format("not all ranks are connected after {}: ", seconds_text(options_.timeout));
    if (!silent.empty()) {
      text += ranks_text(silent) + " gave their addresses but did not connect to this rank's";
      for (const auto& address : listener_.card.addresses)
        text += fmt::format(" {}", os::address_text(address, listener_.card.port));
      text += "; ";
    }
    for (const auto& reason : dialler_->reasons()) text += "no connection to " + reason + "; ";
    text += "check firewalls between the hosts, and QCCL_SOCKET_IFNAME, which chooses the interface";
    return failure_about(ErrorKind::deadline_exceeded, missing.front(), std::move(text));
  }

  os::Poller poller_;
  const std::function<Status()>& look_;
  const FullMeshOptions& options_;
  const Clock& clock_;
  const int rank_;
  const int world_;
  MeshListener listener_;
  const GatheredCards gathered_;
  std::optional<PairSecrets> secrets_;
  Acceptor acceptor_;
  std::optional<Dialler> dialler_;
  ConnectedPeers peers_;
  PeerSockets sockets_;
  TimePoint next_look_{};
  Nanoseconds look_again_after_ = kFirstLook;
};

// What other ranks of a start say in the store.
class Reports {
 public:
  Reports(KeySpace& keys, const FullMeshOptions& options, std::uint64_t generation)
      : keys_(keys), location_(options.location), generation_(generation) {}

  // Another rank's reason for giving up. A store that fails at this point is no longer needed; one that says `aborted`
  // wants the start to end.
  Status look() {
    if (is_lost_) return {};
    auto reported = reported_failure(keys_, generation_);
    if (!reported && reported.error().kind == ErrorKind::aborted) return reported.failure();
    is_lost_ = !reported;
    if (!reported || !*reported) return {};
    is_reported_ = true;
    return Failure(ErrorKind::peer_lost, "the job can't start: " + quote_store(**reported, location_));
  }

  void end(const Result<PeerSockets>& connected) {
    if (connected) static_cast<void>(keys_.leave_will({}));  // a store that is lost at this point is no longer needed
    if (!connected && !is_reported_) report_failure(keys_, generation_, connected.error());
  }

 private:
  KeySpace& keys_;
  const std::string& location_;
  const std::uint64_t generation_;
  bool is_lost_ = false;      // the store
  bool is_reported_ = false;  // a failure is in the store already
};

}  // namespace

Result<MeshListener> listen_for_mesh(const FullMeshOptions& options, const Clock& clock) {
  MeshListener listener;
  AddressCard& card = listener.card;
  card.transport = options.transport;
  card.encrypts = options.protection.key != nullptr && options.protection.encrypts;
  card.first_cpu = static_cast<std::uint32_t>(os::first_available_cpu());
  card.boot_id = os::boot_id();
  if (!card.boot_id.empty()) card.boot_id += os::network_namespace() + options.host_suffix;
  if (options.transport != TransportChoice::shm) {
    QCCL_ASSIGN(auto addresses, choose_addresses(options.launch, options.deadline, clock));
    QCCL_ASSIGN(listener.sockets.tcp, os::listen_tcp(addresses.listen_on, 0));
    QCCL_ASSIGN(card.port, os::local_port(listener.sockets.tcp));
    card.addresses = std::move(addresses.published);
  }
  if (options.transport != TransportChoice::tcp && !card.boot_id.empty()) {
    card.unix_name = fmt::format("qccl-{:016x}{:016x}", os::random_nonce(), os::random_nonce());
    QCCL_ASSIGN(listener.sockets.local, os::listen_unix_abstract(card.unix_name));
  }
  return listener;
}

Result<PeerSockets> connect_full_mesh(MeshListener listener, GatheredCards gathered, const FullMeshOptions& options,
                                      const std::function<Status()>& look, const Clock& clock) {
  QCCL_ASSIGN(auto poller, os::Poller::create());
  return FullMesh(std::move(poller), std::move(listener), std::move(gathered), options, look, clock).connect();
}

Result<PeerSockets> connect_full_mesh(Store* store, const FullMeshOptions& options, const Clock& clock) {
  const LaunchIdentity& launch = options.launch;
  if (launch.world == 1) {
    PeerSockets alone{.on_this_host = {true}, .hosts = {0}, .processes = {own_process_text()}};
    alone.tcp.resize(1);
    alone.local.resize(1);
    alone.job = os::random_nonce();
    return alone;
  }
  QCCL_CHECK(store != nullptr);
  auto listener = listen_for_mesh(options, clock);
  if (!listener) return named(launch.rank, launch.world, listener.error());
  QCCL_ASSIGN(auto poller, os::Poller::create());
  KeySpace keys(*store, launch.job, launch.restart, clock);
  const Participant self{launch.rank,        launch.world,
                         own_process_text(), encode_card(listener->card),
                         options.location,   {options.protection.key, launch.job, launch.restart}};
  QCCL_ASSIGN(auto gathered, gather_cards(keys, self, {&clock, options.deadline, options.timeout}));
  Reports reports(keys, options, gathered.generation);
  const std::function<Status()> look = [&] { return reports.look(); };
  FullMesh mesh(std::move(poller), std::move(*listener), std::move(gathered), options, look, clock);
  auto connected = mesh.connect();
  // Before the mesh ends its connections: ranks that see their end look for the reason.
  reports.end(connected);
  return connected;
}

}  // namespace qccl::bootstrap
