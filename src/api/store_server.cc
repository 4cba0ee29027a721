// The public StoreServer and connect_store(): the library's TCP store at an address that the program passes on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/clock.h"
#include "base/options.h"
#include "bootstrap/door/newcomer.h"
#include "bootstrap/launcher/launchers.h"
#include "bootstrap/mesh/address_card.h"
#include "bootstrap/store/tcp_store.h"
#include "bootstrap/store/tcp_store_server.h"
#include "os/net/socket.h"
#include "os/process.h"
#include "qccl/store.h"
#include "secure/key.h"

namespace qccl {
namespace {

// What the secrets of server and clients are derived from; jobs are told apart by their keys in the store.
constexpr const char* kName = "served store";
// An address that does not answer gives way to the next.
constexpr Nanoseconds kConnectLimit = std::chrono::seconds(3);
constexpr Nanoseconds kRetryDelay = std::chrono::milliseconds(250);

Result<bootstrap::StoreSecrets> secrets() {
  QCCL_ASSIGN(auto key, secure::find_key(""));
  return bootstrap::StoreSecrets(std::move(key), kName, 0);
}

Result<bootstrap::Addresses> own_addresses() {
  bootstrap::LaunchIdentity any{.world = 2};  // clients may be on any host
  if (const auto filter = bootstrap::find_interface_filter(environment)) {
    any.interface_filter = filter->value;
    any.filter_source = filter->name;
  }
  return bootstrap::choose_addresses(any);
}

// What connect_store() returns points into it.
struct Client {
  Client(const bootstrap::TcpStoreOptions& options, SteadyClock steady) : clock(steady), store(with_clock(options)) {}
  bootstrap::TcpStoreOptions with_clock(bootstrap::TcpStoreOptions options) const {
    options.clock = &clock;
    return options;
  }

  const SteadyClock clock;
  bootstrap::TcpStore store;
};

// The first that answers. Tries again until the deadline unless all refuse: the way there may come later, but a store
// that is gone does not.
Result<bootstrap::DoorAddress> reach(const std::string& address, TimePoint deadline, const Clock& clock) {
  QCCL_ASSIGN(const auto places, bootstrap::parse_doors(address, "connect_store()"));
  for (;; os::pause(kRetryDelay)) {
    std::vector<std::string> reasons;
    bool all_refused = true;
    for (const bootstrap::DoorAddress& place : places) {
      const TimePoint until = std::min(deadline, saturating_add(clock.now(), kConnectLimit));
      auto socket = os::connect_tcp_once(place.host, place.port, until, clock);
      if (socket) return place;
      all_refused &= os::was_refused(socket.error());
      reasons.push_back(socket.error().message);
    }
    if (!all_refused && clock.now() < deadline) continue;
    return Failure(ErrorKind::peer_lost, fmt::format("no store answers; the process that served it may have ended: {}",
                                                     fmt::join(reasons, "; ")));
  }
}

Result<std::shared_ptr<Store>> connect(const std::string& address, std::optional<std::chrono::milliseconds> timeout) {
  QCCL_ASSIGN(const Options options, Options::from_environment());
  QCCL_ASSIGN(auto shared_secrets, secrets());
  const SteadyClock clock;
  const TimePoint deadline =
      saturating_add(clock.now(), timeout ? saturating_nanoseconds(*timeout) : options.init_timeout);
  QCCL_ASSIGN(const auto place, reach(address, deadline, clock));
  const bootstrap::TcpStoreOptions client_options{
      .host = place.host, .port = place.port, .deadline = deadline, .secrets = std::move(shared_secrets)};
  const auto client = std::make_shared<Client>(client_options, clock);
  return std::shared_ptr<Store>(client, &client->store);
}

}  // namespace

struct StoreServer::State {
  std::unique_ptr<bootstrap::TcpStoreServer> server;
  std::string address;

  static Result<std::unique_ptr<State>> open() {
    QCCL_ASSIGN(const bootstrap::Addresses addresses, own_addresses());
    QCCL_ASSIGN(auto own_secrets, secrets());
    QCCL_ASSIGN(auto server, bootstrap::TcpStoreServer::start(addresses.listen_on, 0, {}, std::move(own_secrets)));
    std::vector<std::string> texts;
    for (const std::string& each : addresses.published) texts.push_back(os::address_text(each, server->port()));
    return std::make_unique<State>(std::move(server), fmt::format("{}", fmt::join(texts, ",")));
  }

  State(std::unique_ptr<bootstrap::TcpStoreServer> started, std::string where)
      : server(std::move(started)), address(std::move(where)) {}
};

StoreServer::StoreServer() : state_(memory_checked([] { return State::open().take_or_throw(); })) {}
StoreServer::~StoreServer() = default;

const std::string& StoreServer::address() const { return state_->address; }

void StoreServer::close(std::chrono::milliseconds linger) {
  memory_checked([&] { state_->server->stop(saturating_nanoseconds(linger)); });
}

std::shared_ptr<Store> connect_store(const std::string& address, std::optional<std::chrono::milliseconds> timeout) {
  return memory_checked([&] { return connect(address, timeout).take_or_throw(); });
}

}  // namespace qccl
