// The meeting of a grown job's ranks.
#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "group/growth/grown_group.h"

namespace qccl::internal {
namespace {

using bootstrap::GatheredCards;
using bootstrap::LaunchIdentity;
using bootstrap::MeshListener;
using bootstrap::Seat;
using comm::Context;
using comm::Settings;

constexpr std::uint64_t kWorldGroup = 1;

LaunchIdentity membership_of(const Seat& seat, const Settings& settings) {
  LaunchIdentity own;
  own.rank = seat.rank;
  own.world = seat.world;
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

// The name of the job is new, so there is one generation.
Result<GatheredCards> cards_of(const Seat& seat) {
  GatheredCards gathered;
  for (const std::string& encoded : seat.records) {
    QCCL_ASSIGN(auto record, bootstrap::decode_record(encoded));
    gathered.cards.push_back(std::move(record.card));
    gathered.processes.push_back(std::move(record.process));
  }
  if (std::cmp_equal(gathered.cards.size(), seat.world)) return gathered;
  return Failure(ErrorKind::corrupt_data,
                 "the seat that a member of the job gave does not say how to reach the others");
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

Result<std::shared_ptr<CommunicatorState>> open_world(const std::shared_ptr<Context>& context) {
  comm::GroupIdentity world{.id = kWorldGroup, .name = "world", .rank = context->rank()};
  world.ranks.resize(static_cast<std::size_t>(context->world()));
  std::iota(world.ranks.begin(), world.ranks.end(), 0);
  return CommunicatorState::open(context, std::move(world));
}

Result<MeshListener> listen(const Settings& settings) {
  return bootstrap::listen_for_mesh({.launch = {.master_address = settings.towards,
                                                .has_own_store = true,  // others may be on any host
                                                .interface_filter = settings.interface_filter,
                                                .filter_source = settings.filter_source},
                                     .transport = settings.options.transport,
                                     .protection = settings.protection},
                                    steady_clock());
}

Result<std::shared_ptr<CommunicatorState>> meet(const Seat& seat, Settings settings, MeshListener listener,
                                                std::function<Status()> look, std::shared_ptr<bootstrap::Door> door) {
  QCCL_ASSIGN(GatheredCards cards, cards_of(seat));
  QCCL_ASSIGN(auto context, Context::create({.launch = membership_of(seat, settings),
                                             .settings = settings_of(seat, std::move(settings)),
                                             .grown = comm::GrownStart{.listener = std::move(listener),
                                                                       .cards = std::move(cards),
                                                                       .look = std::move(look),
                                                                       .door = std::move(door)}}));
  QCCL_ASSIGN(auto world, open_world(context));
  QCCL_TRY(adopt(*world, seat));
  return world;
}

}  // namespace qccl::internal
