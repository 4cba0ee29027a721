#include "bootstrap/door/door.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "base/log.h"
#include "bootstrap/mesh/address_card.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

// A port that another process has, for example another rank of this host, is no reason to stay closed.
Result<std::unique_ptr<TcpStoreServer>> listen(const std::string& address, std::uint16_t port,
                                               const std::shared_ptr<WaitingRoom>& room, const StoreSecrets& secrets) {
  auto server = TcpStoreServer::start(address, port, room, secrets);
  if (server || server.error().kind != ErrorKind::resource_exhausted || port == 0) return server;
  log(LogLevel::warning, fmt::format("the door takes any port: {}", server.error().message));
  return TcpStoreServer::start(address, 0, room, secrets);
}

}  // namespace

Result<std::shared_ptr<Door>> Door::open(const DoorOptions& options) {
  const LaunchIdentity any{.world = 2,  // newcomers may be on any host
                           .interface_filter = options.interface_filter,
                           .filter_source = options.filter_source};
  QCCL_ASSIGN(const Addresses addresses, choose_addresses(any));
  auto room = std::make_shared<WaitingRoom>(options.job);
  QCCL_ASSIGN(auto server, listen(addresses.listen_on, options.port, room, {options.key, door_name(options.job), 0}));
  std::vector<std::string> texts;
  for (const std::string& address : addresses.published) texts.push_back(os::address_text(address, server->port()));
  return std::shared_ptr<Door>(new Door(std::move(room), std::move(server), fmt::format("{}", fmt::join(texts, ","))));
}

Door::Called Door::call(TimePoint deadline) {
  Called called(*this);
  room_->call();
  server_->wake();
  called.answers_ = room_->await_answers(deadline);
  return called;
}

Door::Called::~Called() {
  if (!lock_.owns_lock()) return;
  for (const auto& [ticket, record] : answers_) door_->room_->send_back(ticket);
  door_->server_->wake();
}

void Door::Called::seat(const Seat& seat) {
  door_->room_->seat(answers_.at(seated_).ticket, encode_seat(seat));
  ++seated_;
  door_->server_->wake();
}

bool Door::Called::has_lost_one() const {
  const auto seated = std::span(answers_).first(seated_);
  return !std::ranges::all_of(
      seated, [this](std::int64_t ticket) { return door_->room_->has(ticket); }, &WaitingRoom::Answer::ticket);
}

void Door::Called::admit() {
  for (std::size_t index = 0; index < seated_; ++index) door_->room_->admit(answers_[index].ticket);
  door_->server_->wake();
}

}  // namespace qccl::bootstrap
