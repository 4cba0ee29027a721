#include "bootstrap/door/door.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>

#include "base/log.h"
#include "bootstrap/launcher/membership.h"
#include "bootstrap/mesh/address_card.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

// A newcomer that is not told waits in vain.
constexpr int kMostTells = 50;
constexpr Nanoseconds kTellAgain = std::chrono::milliseconds(20);

std::string key_of(std::int64_t ticket, int round, const char* name) {
  return fmt::format("{}/{}/{}", ticket, round, name);
}

// A port that another process has, for example another rank of this host, is no reason to stay closed.
Result<std::unique_ptr<TcpStoreServer>> listen(const std::string& address, std::uint16_t port,
                                               const std::shared_ptr<WaitingRoom>& room, const StoreSecrets& secrets) {
  auto server = TcpStoreServer::start(address, port, room, secrets);
  if (server || server.error().kind != ErrorKind::resource_exhausted || port == 0) return server;
  log(LogLevel::warning, fmt::format("the door takes any port: {}", server.error().message));
  return TcpStoreServer::start(address, 0, room, secrets);
}

TcpStoreOptions with_clock(TcpStoreOptions options, const Clock& clock) {
  options.clock = &clock;
  return options;
}

}  // namespace

Result<std::shared_ptr<Door>> Door::open(const DoorOptions& options) {
  const Membership any{.world = 2,  // newcomers may be on any host
                       .interface_filter = options.interface_filter,
                       .filter_source = options.filter_source};
  QCCL_ASSIGN(const Addresses addresses, choose_addresses(any));
  const std::string name = door_name(options.job);
  auto room = std::make_shared<WaitingRoom>(options.job, options.most_bytes);
  QCCL_ASSIGN(auto server, listen(addresses.listen_on, options.port, room, {options.key, name, 0}));
  std::vector<std::string> texts;
  for (const std::string& address : addresses.published) texts.push_back(os::address_text(address, server->port()));
  TcpStoreOptions own{
      .host = addresses.published.front(), .port = server->port(), .retries = false, .dial = [at = server.get()] {
        return at->connect_own();
      }};
  return std::shared_ptr<Door>(
      new Door(std::move(room), std::move(server), std::move(own), fmt::format("{}", fmt::join(texts, ",")), name));
}

// A server without memory drops its clients, this one too, which then connects again.
Door::Door(std::shared_ptr<WaitingRoom> room, std::unique_ptr<TcpStoreServer> server, TcpStoreOptions own,
           std::string address, const std::string& job)
    : room_(std::move(room)),
      server_(std::move(server)),
      address_(std::move(address)),
      store_(with_clock(std::move(own), clock_), server_->take_own_client()),
      keys_(store_, job, 0, clock_) {}

// set() has no answer; the answer to this shows that what was set before has arrived.
Status Door::show_arrival() {
  auto arrived = keys_.add("tickets", 0);
  return arrived ? Status() : Status(arrived.failure());
}

// The tickets of those it has called.
Result<std::vector<std::int64_t>> Door::call_those_not_silent() {
  const std::vector<std::int64_t> waiting = room_->tickets();
  std::erase_if(newcomers_, [&](const auto& each) { return !std::ranges::binary_search(waiting, each.first); });
  std::vector<std::int64_t> called;
  for (const std::int64_t ticket : waiting) {
    const Newcomer& newcomer = newcomers_[ticket];
    if (newcomer.is_in || newcomer.is_silent) continue;
    room_->call(ticket, newcomer.round);
    QCCL_TRY(keys_.set(key_of(ticket, newcomer.round, "call"), ""));
    called.push_back(ticket);
  }
  if (!called.empty()) QCCL_TRY(show_arrival());
  return called;
}

Result<Door::Called> Door::call(TimePoint deadline) {
  Called called(*this);
  QCCL_ASSIGN(const auto awaited, call_those_not_silent());
  room_->await_answers(awaited, deadline);
  for (auto& [ticket, newcomer] : newcomers_) {
    if (newcomer.is_in) continue;
    newcomer.is_silent = !room_->has_answered(ticket);
    if (!newcomer.is_silent) called.tickets_.push_back(ticket);
  }
  return called;
}

Door::Called::~Called() {
  if (!lock_.owns_lock()) return;
  for (std::size_t index = 0; index < tickets_.size(); ++index) {
    Newcomer& newcomer = door_->newcomers_.at(tickets_[index]);
    if (newcomer.is_in) continue;
    tell(index, index < seated_ ? "in" : "seat", "");
    ++newcomer.round;
  }
}

// Waits for memory if there is none.
void Door::Called::tell(std::size_t index, const char* name, const std::string& value) {
  const std::int64_t ticket = tickets_[index];
  for (int tries = 1; tries <= kMostTells; ++tries) {
    if (tries > 1) os::pause(kTellAgain);
    try {
      Status told = door_->keys_.set(key_of(ticket, door_->newcomers_.at(ticket).round, name), value);
      if (told.ok()) told = door_->show_arrival();
      if (told.ok()) return;
      if (tries == kMostTells) log(LogLevel::error, "a newcomer at the door waits in vain: " + told.error().message);
    } catch (const std::bad_alloc&) {
    }
  }
}

void Door::Called::seat(std::size_t index, const Seat& seat) {
  QCCL_CHECK(index == seated_);
  ++seated_;
  tell(index, "seat", encode_seat(seat));
}

bool Door::Called::has_lost_one() const {
  const auto end = tickets_.begin() + static_cast<std::ptrdiff_t>(seated_);
  return !std::all_of(tickets_.begin(), end, [this](std::int64_t ticket) { return door_->room_->has(ticket); });
}

void Door::Called::admit() {
  for (std::size_t index = 0; index < seated_; ++index) {
    tell(index, "in", "1");
    door_->newcomers_.at(tickets_[index]).is_in = true;
  }
}

}  // namespace qccl::bootstrap
