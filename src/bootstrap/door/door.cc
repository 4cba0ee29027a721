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

// A stranger may take any number of tickets.
constexpr std::size_t kMostAtOnce = kMaxWorld;

// A newcomer that is not told waits in vain.
constexpr int kMostTells = 50;
constexpr Nanoseconds kTellAgain = std::chrono::milliseconds(20);

std::string key_of(std::int64_t ticket, int round, const char* name) {
  return fmt::format("{}/{}/{}", ticket, round, name);
}

// A port that another process has, for example another rank of this host, is no reason to stay closed.
Result<std::unique_ptr<TcpStoreServer>> listen(const std::string& address, std::uint16_t port,
                                               const StoreSecrets& secrets) {
  auto server = TcpStoreServer::start(address, port, {}, secrets);
  if (server || server.error().kind != ErrorKind::resource_exhausted || port == 0) return server;
  log(LogLevel::warning, fmt::format("the door takes any port: {}", server.error().message));
  return TcpStoreServer::start(address, 0, {}, secrets);
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
  QCCL_ASSIGN(auto server, listen(addresses.listen_on, options.port, {options.key, name, 0}));
  std::vector<std::string> texts;
  for (const std::string& address : addresses.published) texts.push_back(os::address_text(address, server->port()));
  TcpStoreOptions own{.host = addresses.published.front(), .port = server->port(), .secrets = {options.key, name, 0}};
  return std::shared_ptr<Door>(
      new Door(std::move(server), std::move(own), fmt::format("{}", fmt::join(texts, ",")), name));
}

// A server without memory drops its clients, this one too, which then comes as any other.
Door::Door(std::unique_ptr<TcpStoreServer> server, TcpStoreOptions own, std::string address, const std::string& job)
    : server_(std::move(server)),
      address_(std::move(address)),
      store_(with_clock(std::move(own), clock_), server_->take_own_client()),
      keys_(store_, job, 0, clock_) {}

Status Door::find_new() {
  QCCL_ASSIGN(const std::int64_t newest, keys_.add("tickets", 0));
  const std::size_t most = newcomers_.size() + kMostAtOnce;
  while (static_cast<std::int64_t>(newcomers_.size()) < newest && newcomers_.size() < most) {
    newcomers_.push_back({.ticket = static_cast<std::int64_t>(newcomers_.size()) + 1});
  }
  return {};
}

Result<bool> Door::is_gone(const Newcomer& newcomer) {
  QCCL_ASSIGN(const auto gone, keys_.get(fmt::format("{}/gone", newcomer.ticket), TimePoint{}));
  return gone.has_value();
}

Result<Door::Called> Door::call(TimePoint deadline) {
  Called called(*this);
  QCCL_TRY(find_new());
  for (Newcomer& each : newcomers_) {
    if (!each.waits()) continue;
    QCCL_ASSIGN(each.is_gone, is_gone(each));
    if (each.waits()) QCCL_TRY(keys_.set(key_of(each.ticket, each.round, "call"), ""));
  }
  for (std::size_t index = 0; index < newcomers_.size(); ++index) {
    Newcomer& each = newcomers_[index];
    if (!each.waits()) continue;
    const TimePoint until = each.is_silent ? TimePoint{} : deadline;
    QCCL_ASSIGN(const auto answer, keys_.get(key_of(each.ticket, each.round, "here"), until));
    each.is_silent = !answer;
    if (answer) called.indices_.push_back(index);
  }
  return called;
}

Status Door::wait_for_another(TimePoint deadline) {
  const std::lock_guard lock(mutex_);
  auto arrived = keys_.get(fmt::format("{}/process", newcomers_.size() + 1), deadline);
  return arrived ? Status() : Status(arrived.failure());
}

Door::Called::~Called() {
  if (!lock_.owns_lock()) return;
  for (std::size_t index = 0; index < indices_.size(); ++index) {
    Newcomer& newcomer = door_->newcomers_[indices_[index]];
    if (newcomer.is_in) continue;
    tell(index, index < seated_ ? "in" : "seat", "");
    ++newcomer.round;
  }
}

// Waits for memory if there is none.
void Door::Called::tell(std::size_t index, const char* name, const std::string& value) {
  const Newcomer& newcomer = door_->newcomers_[indices_[index]];
  for (int tries = 1; tries <= kMostTells; ++tries) {
    if (tries > 1) os::pause(kTellAgain);
    try {
      const Status told = door_->keys_.set(key_of(newcomer.ticket, newcomer.round, name), value);
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

Result<bool> Door::Called::has_lost_one() const {
  for (std::size_t index = 0; index < seated_; ++index) {
    QCCL_ASSIGN(const bool gone, door_->is_gone(door_->newcomers_[indices_[index]]));
    if (gone) return true;
  }
  return false;
}

void Door::Called::admit() {
  for (std::size_t index = 0; index < seated_; ++index) {
    tell(index, "in", "1");
    door_->newcomers_[indices_[index]].is_in = true;
  }
}

}  // namespace qccl::bootstrap
