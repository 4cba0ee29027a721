// The public find_launch(): who this process is to the launcher, for programs with their own communication.
#include "qccl/launch.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/options.h"
#include "base/text.h"
#include "bootstrap/launcher/launch_identity.h"
#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/meeting/open_store.h"
#include "os/net/socket.h"
#include "os/process.h"
#include "secure/key.h"

namespace qccl {
namespace {

using bootstrap::LaunchIdentity;

// How long rank 0 serves the store for ranks that are still reading from it.
constexpr Nanoseconds kStoreLinger = std::chrono::seconds(5);
constexpr const char* kThisHost = "127.0.0.1";

// Whether options or variables name rank 0's address and port, not only a launcher or the program's store.
bool is_given(const InitOptions& options, const LaunchIdentity& own) {
  if (own.master_address.empty() || own.master_port == 0 || own.has_own_store) return false;
  return (options.master_address || environment("MASTER_ADDR")) && (options.master_port || environment("MASTER_PORT"));
}

Status choose_port(std::uint16_t wanted, Launch& launch) {
  launch.master_port = wanted;
  if (wanted != 0) return {};
  QCCL_ASSIGN(os::Fd socket, os::reserve_tcp_port());
  QCCL_ASSIGN(launch.master_port, os::local_port(socket));
  launch.held_port = std::make_shared<os::Fd>(std::move(socket));
  return {};
}

// Reads rank 0's card: "40000 10.0.0.1".
Status read_location(const std::string& card, Launch& launch) {
  const auto blank = card.find(' ');
  const auto port = parse_number<std::uint16_t>(std::string_view(card).substr(0, blank));
  if (blank == std::string::npos || !port || printable(card) != card) {
    return Failure(ErrorKind::corrupt_data,
                   fmt::format("rank 0 sent \"{}\" in place of its port and address", printable(card)));
  }
  launch.master_port = *port;
  launch.master_address = card.substr(blank + 1);
  return {};
}

Status meet(LaunchIdentity own, const InitOptions& options, std::uint16_t port, Launch& launch) {
  own.job += "/launch";
  QCCL_ASSIGN(const Options settings, Options::from_environment());
  QCCL_ASSIGN(const auto key, secure::find_key(options.key));
  const SteadyClock clock;
  const Nanoseconds timeout =
      options.init_timeout ? saturating_nanoseconds(*options.init_timeout) : settings.init_timeout;
  const TimePoint deadline = saturating_add(clock.now(), timeout);
  QCCL_ASSIGN(auto meeting, bootstrap::open_store(own, options.store, deadline, clock, key));
  if (own.rank == 0) QCCL_TRY(choose_port(port, launch));
  const std::string address = meeting.address.empty() ? kThisHost : meeting.address;
  const bootstrap::Participant self{own.rank,
                                    own.world,
                                    bootstrap::own_process_text(),
                                    fmt::format("{} {}", launch.master_port, address),
                                    meeting.location,
                                    {key, own.job, own.restart}};
  bootstrap::KeySpace keys(*meeting.store, own.job, own.restart, clock);
  auto gathered = bootstrap::gather_cards(keys, self, {&clock, deadline, timeout});
  static_cast<void>(keys.leave_will({}));
  meeting.close(kStoreLinger);
  if (!gathered) return gathered.failure();
  return read_location(gathered->cards.front(), launch);
}

Result<Launch> found(const InitOptions& options, std::uint16_t port) {
  QCCL_ASSIGN(const LaunchIdentity own,
              bootstrap::discover_identity(options, [](const char* name) { return environment(name); }));
  Launch launch{.rank = own.rank,
                .world = own.world,
                .local_rank = own.local_rank,
                .local_world = own.local_world,
                .source = own.source,
                .master_address = own.master_address,
                .master_port = own.master_port,
                .held_port = nullptr};
  if (launch.local_rank < 0 && bootstrap::on_one_host(own)) {
    launch.local_rank = own.rank;
    launch.local_world = own.world;
  }
  if (is_given(options, own)) return launch;
  if (own.world == 1) {
    launch.master_address = kThisHost;
    QCCL_TRY(choose_port(port, launch));
  } else {
    QCCL_TRY(meet(own, options, port, launch));
  }
  return launch;
}

}  // namespace

Launch find_launch(const InitOptions& options, std::uint16_t port) { return found(options, port).take_or_throw(); }

}  // namespace qccl
