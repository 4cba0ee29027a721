#include "bootstrap/mesh/full_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/digest/digest.h"
#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/meeting/rank_text.h"
#include "bootstrap/mesh/acceptor.h"
#include "bootstrap/mesh/address_card.h"
#include "bootstrap/mesh/dialler.h"
#include "bootstrap/mesh/handshake.h"
#include "bootstrap/store/key_space.h"
#include "os/net/poller.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

constexpr Nanoseconds kLookForFailuresEvery = std::chrono::seconds(1);

std::uint64_t job_digest(const Membership& membership, const GatheredCards& gathered) {
  return digest(fmt::format("{}/{}/{}/{}", membership.job, membership.restart, gathered.generation, gathered.nonce));
}

// One rank's part in building the mesh.
class FullMesh {
 public:
  FullMesh(os::Poller poller, KeySpace& keys, const FullMeshOptions& options, const Clock& clock)
      : poller_(std::move(poller)),
        keys_(keys),
        options_(options),
        clock_(clock),
        rank_(options.membership.rank),
        world_(options.membership.world),
        acceptor_(poller_, clock) {}

  Result<PeerSockets> connect();

 private:
  Status listen();
  Status exchange_cards();
  Status start();
  void count_cores();
  DialTarget dial_target(int rank) const;
  Status connect_all();
  Status serve(const os::Poller::Ready& event);
  Status check_link(std::uint64_t index);
  Status take(std::vector<Link> links);
  void settle_local(int rank, ConfirmByte confirm);
  bool connected(int rank) const;
  bool complete() const;
  Status look_for_failures();
  Failure out_of_time();
  Failure named(ErrorInfo info) const;

  std::size_t slot(int rank) const { return static_cast<std::size_t>(rank); }

  os::Poller poller_;
  KeySpace& keys_;
  const FullMeshOptions& options_;
  const Clock& clock_;
  const int rank_;
  const int world_;
  Acceptor acceptor_;
  std::optional<Dialler> dialler_;
  AddressCard card_;
  std::vector<AddressCard> cards_;
  GatheredCards gathered_;
  // Whether a rank's last connection has been made, and whether a unix socket belongs to it.
  std::vector<bool> settled_;
  std::vector<bool> expects_local_;
  PeerSockets links_;
  TimePoint next_look_{};
  bool told_by_another_ = false;  // this rank's failure is one already in the store
};

Result<PeerSockets> FullMesh::connect() {
  Status status = listen();
  if (!status.ok()) return named(status.error());
  QCCL_TRY(exchange_cards());
  status = start();
  if (status.ok()) status = connect_all();
  if (status.ok()) return std::move(links_);
  Failure failure = named(status.error());
  if (!told_by_another_) report_failure(keys_, gathered_.generation, failure.info());
  return failure;
}

Status FullMesh::listen() {
  card_.transport = options_.transport;
  card_.first_cpu = static_cast<std::uint32_t>(os::first_available_cpu());
  card_.boot_id = os::boot_id();
  if (!card_.boot_id.empty()) card_.boot_id += os::network_namespace() + options_.host_suffix;
  if (options_.transport != TransportChoice::shm) {
    auto addresses = choose_addresses(options_.membership);
    if (!addresses) return addresses.failure();
    auto port = acceptor_.listen_tcp(addresses->listen_on);
    if (!port) return port.failure();
    card_.addresses = std::move(addresses->published);
    card_.port = *port;
  }
  if (options_.transport != TransportChoice::tcp && !card_.boot_id.empty()) {
    auto name = acceptor_.listen_local();
    if (!name) return name.failure();
    card_.unix_name = *name;
  }
  return {};
}

Status FullMesh::exchange_cards() {
  const Participant self{rank_, world_, own_process_text(), encode_card(card_), options_.location};
  auto gathered = gather_cards(keys_, self, {&clock_, options_.deadline, options_.timeout});
  if (!gathered) return gathered.failure();
  gathered_ = std::move(*gathered);
  return {};
}

// Counts ranks that share this machine's cores, even if they count as several hosts.
void FullMesh::count_cores() {
  const std::string machine = os::boot_id();
  std::set<std::uint32_t> first_cpus = {card_.first_cpu};
  links_.machine_ranks = 1;
  for (int rank = 0; rank < world_; ++rank) {
    const AddressCard& card = cards_[slot(rank)];
    if (rank == rank_ || machine.empty() || !card.boot_id.starts_with(machine)) continue;
    ++links_.machine_ranks;
    first_cpus.insert(card.first_cpu);
  }
  links_.machine_cores = std::max(os::available_cpus(), static_cast<int>(first_cpus.size()));
}

// With all cards known: finds each rank's host and dials the lower ranks.
Status FullMesh::start() {
  const auto world = slot(world_);
  links_.tcp.resize(world);
  links_.local.resize(world);
  links_.on_this_host.resize(world);
  links_.processes = gathered_.processes;
  links_.job = job_digest(options_.membership, gathered_);
  settled_.resize(world);
  expects_local_.resize(world);
  for (int rank = 0; rank < world_; ++rank) {
    auto card = decode_card(gathered_.cards[slot(rank)]);
    if (!card) return Failure(card.error().kind, fmt::format("rank {}: {}", rank, card.error().message));
    if (rank != rank_) QCCL_TRY(check_card(card_, rank, *card));
    links_.on_this_host[slot(rank)] = rank == rank_ || same_host(card_, *card);
    const auto is_neighbour = [&](const AddressCard& earlier) { return same_host(earlier, *card); };
    const auto first = std::find_if(cards_.begin(), cards_.end(), is_neighbour);
    links_.hosts.push_back(static_cast<int>(first - cards_.begin()));
    cards_.push_back(std::move(*card));
  }
  links_.local_ranks = static_cast<int>(std::count(links_.on_this_host.begin(), links_.on_this_host.end(), true));

  count_cores();

  wire::Hello own;
  own.rank = static_cast<std::uint32_t>(rank_);
  own.world = static_cast<std::uint32_t>(world_);
  own.job = links_.job;
  QCCL_TRY(acceptor_.start(own));
  dialler_.emplace(poller_, clock_, own);
  for (int rank = 0; rank < rank_; ++rank) dialler_->add(dial_target(rank));
  next_look_ = saturating_add(clock_.now(), kLookForFailuresEvery);
  return {};
}

DialTarget FullMesh::dial_target(int rank) const {
  const AddressCard& card = cards_[slot(rank)];
  DialTarget target{.rank = rank, .addresses = card.addresses, .port = card.port};
  if (same_host(card_, card)) target.unix_name = card.unix_name;
  target.local_only = options_.transport == TransportChoice::shm;
  return target;
}

Status FullMesh::connect_all() {
  while (!complete()) {
    QCCL_TRY(dialler_->turn());
    acceptor_.expire();
    QCCL_TRY(look_for_failures());
    const TimePoint until = std::min({options_.deadline, dialler_->next_turn(), next_look_});
    const auto ready = poller_.wait(until - clock_.now());
    for (const auto& event : ready) QCCL_TRY(serve(event));
    QCCL_TRY(take(acceptor_.take_links()));
    QCCL_TRY(take(dialler_->take_links()));
    if (!complete() && clock_.now() >= options_.deadline) return out_of_time();
  }
  return {};
}

Status FullMesh::serve(const os::Poller::Ready& event) {
  const std::uint64_t index = index_of(event.token);
  switch (owner_of(event.token)) {
    case SocketOwner::acceptor: return acceptor_.ready(index);
    case SocketOwner::dialler: return dialler_->ready(static_cast<int>(index), event.writable);
    case SocketOwner::link: return check_link(index);
  }
  return {};
}

// A finished connection became readable: its rank has begun to work, or has ended.
Status FullMesh::check_link(std::uint64_t index) {
  const int rank = static_cast<int>(index / 2);
  const os::Fd& socket = (index % 2 == 0 ? links_.tcp : links_.local)[slot(rank)];
  if (!socket.valid()) return {};
  if (!os::peer_closed(socket.get())) {
    poller_.forget(socket.get());
    return {};
  }
  if (next_look_ != kForever) next_look_ = clock_.now();
  QCCL_TRY(look_for_failures());
  Failure failure(ErrorKind::peer_lost, fmt::format("rank {} ({}) ended while ranks were still connecting", rank,
                                                    links_.processes[slot(rank)]));
  failure.info().peer = rank;
  return failure;
}

Status FullMesh::take(std::vector<Link> links) {
  for (Link& link : links) {
    const bool tcp = link.kind == LinkKind::tcp;
    os::Fd& socket = (tcp ? links_.tcp : links_.local)[slot(link.rank)];
    socket = std::move(link.socket);  // the newest is the one its dialler kept
    const auto index = static_cast<std::uint64_t>(link.rank) * 2 + (tcp ? 0 : 1);
    QCCL_TRY(poller_.watch(socket.get(), socket_token(SocketOwner::link, index)));
    if (tcp || options_.transport == TransportChoice::shm) settle_local(link.rank, link.confirm);
  }
  return {};
}

// The last connection of a pair says whether its unix socket counts.
void FullMesh::settle_local(int rank, ConfirmByte confirm) {
  settled_[slot(rank)] = true;
  const bool keep = confirm == ConfirmByte::beside_local || options_.transport == TransportChoice::shm;
  if (!keep) links_.local[slot(rank)].reset();
  expects_local_[slot(rank)] = keep;
}

bool FullMesh::connected(int rank) const {
  return settled_[slot(rank)] && links_.local[slot(rank)].valid() == expects_local_[slot(rank)];
}

bool FullMesh::complete() const {
  for (int rank = 0; rank < world_; ++rank) {
    if (rank != rank_ && !connected(rank)) return false;
  }
  return true;
}

// Another rank's reason for giving up, read from the store. A store that fails at this point is no longer needed.
Status FullMesh::look_for_failures() {
  if (clock_.now() < next_look_) return {};
  next_look_ = saturating_add(clock_.now(), kLookForFailuresEvery);
  auto reported = reported_failure(keys_, gathered_.generation);
  if (!reported) next_look_ = kForever;
  if (!reported || !*reported) return {};
  told_by_another_ = true;
  return Failure(ErrorKind::peer_lost, "the job can't start: " + as_read(**reported, options_.location));
}

Failure FullMesh::out_of_time() {
  std::vector<int> missing;
  for (int rank = rank_ + 1; rank < world_; ++rank) {
    if (!connected(rank)) missing.push_back(rank);
  }
  std::string text = fmt::format("not all ranks are connected after {}: ", seconds_text(options_.timeout));
  if (!missing.empty()) {
    text += ranks_text(missing) + " gave their addresses but did not connect to this rank's";
    for (const auto& address : card_.addresses) text += fmt::format(" {}", os::address_text(address, card_.port));
    text += "; ";
  }
  const auto reasons = dialler_->reasons();
  for (const auto& reason : reasons) text += "no connection to " + reason + "; ";
  text += "check firewalls between the hosts, and QCCL_SOCKET_IFNAME, which chooses the interface";
  Failure failure(ErrorKind::deadline_exceeded, std::move(text));
  for (int rank = world_ - 1; rank >= 0; --rank) {
    if (rank != rank_ && !connected(rank)) failure.info().peer = rank;
  }
  return failure;
}

Failure FullMesh::named(ErrorInfo info) const {
  info.rank = rank_;
  info.message = rank_text(rank_, world_) + ": " + info.message;
  return Failure(std::move(info));
}

PeerSockets alone() {
  PeerSockets links;
  links.tcp.resize(1);
  links.local.resize(1);
  links.on_this_host = {true};
  links.hosts = {0};
  links.processes = {own_process_text()};
  links.job = os::random_nonce();
  return links;
}

}  // namespace

Result<PeerSockets> connect_full_mesh(Store* store, const FullMeshOptions& options, const Clock& clock) {
  if (options.membership.world == 1) return alone();
  QCCL_CHECK(store != nullptr);
  auto poller = os::Poller::create();
  if (!poller) return poller.failure();
  KeySpace keys(*store, options.membership.job, options.membership.restart, clock);
  return FullMesh(std::move(*poller), keys, options, clock).connect();
}

}  // namespace qccl::bootstrap
