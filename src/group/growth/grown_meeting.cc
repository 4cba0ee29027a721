// The meeting of a grown job's ranks.
#include <fmt/format.h>

#include <numeric>

#include "bootstrap/door/newcomer.h"
#include "bootstrap/launcher/launchers.h"
#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/mesh/address_card.h"
#include "bootstrap/protocol/key_rules.h"
#include "group/growth/grown_group.h"
#include "job/job_start.h"

namespace qccl::internal {
namespace {

using bootstrap::JobRules;
using bootstrap::LaunchIdentity;
using bootstrap::Seat;
using bootstrap::StoreSecrets;
using bootstrap::TcpStore;
using bootstrap::TcpStoreServer;
using comm::Context;
using comm::Settings;

constexpr std::uint64_t kWorldGroup = 1;
// A meeting place serves one attempt to meet.
constexpr std::uint64_t kGeneration = 1;
constexpr Nanoseconds kTellWithin = std::chrono::seconds(3);
// How long rank 0 serves the store for ranks that still read from it when the mesh is complete.
constexpr Nanoseconds kStoreLinger = std::chrono::seconds(5);

LaunchIdentity membership_of(const Seat& seat, const std::string& address, const Settings& settings) {
  LaunchIdentity own;
  own.rank = seat.rank;
  own.world = seat.world;
  own.master_address = address;
  own.master_port = seat.port;
  own.job = seat.job;
  own.source = "an open job that grew";
  own.interface_filter = settings.interface_filter;
  own.filter_source = settings.filter_source;
  return own;
}

// What describes the ranks that the job began with is not the grown job's.
Settings settings_of(const Seat& seat, Settings settings) {
  settings.options.init_timeout = Nanoseconds(seat.meeting_ns);
  settings.options.hosts.reset();
  settings.options.sites.reset();
  settings.log.rank.reset();
  if (!settings.log.file.empty()) settings.log.file += fmt::format("of{}-", seat.world);
  return settings;
}

bootstrap::TcpStoreOptions client_of(const Seat& seat, const std::string& address, const Settings& settings,
                                     TimePoint deadline) {
  return {.host = address,
          .port = seat.port,
          .deadline = deadline,
          .clock = &steady_clock(),
          .secrets = {settings.protection.key, seat.job, 0},
          .rank = seat.rank,
          .retries = false};
}

Status adopt(CommunicatorState& state, const Seat& seat) {
  QCCL_ASSIGN(const Compression compression, parse_compression(seat.compression));
  state.with_builder([&](comm::CallBuilder& builder) {
    builder.set_compression(compression);
    builder.set_timeout(Nanoseconds(seat.timeout_ns));
  });
  return {};
}

}  // namespace

const SteadyClock& steady_clock() {
  static const SteadyClock clock;
  return clock;
}

Result<MeetingPlace> MeetingPlace::open(const std::string& job, int world, const Context& context) {
  const Settings& settings = context.settings();
  const LaunchIdentity any{
      .world = world, .interface_filter = settings.interface_filter, .filter_source = settings.filter_source};
  QCCL_ASSIGN(bootstrap::Addresses addresses, bootstrap::choose_addresses(any));
  const StoreSecrets secrets(settings.protection.key, job, 0);
  MeetingPlace place;
  // Its name is known to the members and to those they gave a seat: any of them may end the meeting (meeting_watch.h).
  auto rules = std::make_shared<JobRules>(job, 0, world, JobRules::Enders::everyone);
  QCCL_ASSIGN(place.server, TcpStoreServer::start(addresses.listen_on, 0, std::move(rules), secrets));
  place.addresses = std::move(addresses.published);
  return place;
}

MeetingPlace::~MeetingPlace() {
  if (server != nullptr) server->stop(kStoreLinger);
}

Result<std::shared_ptr<CommunicatorState>> open_world(const std::shared_ptr<Context>& context) {
  comm::GroupIdentity world{.id = kWorldGroup, .name = "world", .rank = context->rank()};
  world.ranks.resize(static_cast<std::size_t>(context->world()));
  std::iota(world.ranks.begin(), world.ranks.end(), 0);
  return CommunicatorState::open(context, std::move(world));
}

Status end_meeting(const Seat& seat, const Settings& settings, const std::string& reason) {
  const Clock& clock = steady_clock();
  const TimePoint deadline = saturating_add(clock.now(), kTellWithin);
  QCCL_ASSIGN(const std::string address, bootstrap::reachable_address(seat.addresses, seat.port, deadline, clock));
  TcpStore store(client_of(seat, address, settings, deadline));
  bootstrap::KeySpace keys(store, seat.job, 0, clock);
  return bootstrap::end_generation(keys, kGeneration, reason);
}

Result<std::shared_ptr<CommunicatorState>> meet(const Seat& seat, Settings settings,
                                                std::shared_ptr<bootstrap::Door> door, MeetingPlace* place) {
  const Clock& clock = steady_clock();
  const TimePoint deadline = saturating_add(clock.now(), Nanoseconds(seat.meeting_ns));
  std::string address;
  if (place == nullptr) {
    QCCL_ASSIGN(address, bootstrap::reachable_address(seat.addresses, seat.port, deadline, clock));
  }
  bootstrap::TcpStoreOptions options = client_of(seat, address, settings, deadline);
  auto store = place == nullptr ? std::make_shared<TcpStore>(std::move(options))
                                : std::make_shared<TcpStore>(std::move(options), place->server->take_own_client());
  QCCL_ASSIGN(auto context, Context::create({.launch = membership_of(seat, address, settings),
                                             .settings = settings_of(seat, std::move(settings)),
                                             .store = std::move(store),
                                             .door = std::move(door),
                                             .is_start = false}));
  QCCL_ASSIGN(auto world, open_world(context));
  QCCL_TRY(adopt(*world, seat));
  return world;
}

}  // namespace qccl::internal
