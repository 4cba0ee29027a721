// A newcomer's way into an open job: it finds members' doors, waits there, and meets the members (grown_group.h).
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "base/options.h"
#include "bootstrap/door/door_list.h"
#include "bootstrap/door/newcomer.h"
#include "bootstrap/launcher/launchers.h"
#include "group/growth/grown_group.h"

namespace qccl::internal {
namespace {

using bootstrap::LaunchIdentity;
using bootstrap::Seat;
using bootstrap::TcpStore;
using comm::Settings;

// The doors to join at are those that the store lists in which the job began.
constexpr std::string_view kThroughStore = "store";
// A store that takes longer is asked again later.
constexpr Nanoseconds kStoreLimit = std::chrono::seconds(3);

// Whether another try, with other newcomers or members, may work.
bool may_pass(ErrorKind kind) {
  return kind != ErrorKind::invalid_argument && kind != ErrorKind::unsupported && kind != ErrorKind::misuse;
}

// How a process joins an open job.
class Joining {
 public:
  Joining(const InitOptions& init, Settings settings)
      : init_(init),
        settings_(std::move(settings)),
        source_(init.join.empty() ? "QCCL_JOIN" : "InitOptions::join"),
        deadline_(saturating_add(steady_clock().now(), settings_.options.init_timeout)) {}

  Result<std::shared_ptr<CommunicatorState>> run() {
    QCCL_TRY(check());
    QCCL_ASSIGN(const auto door, comm::open_door(settings_));
    QCCL_ASSIGN(auto source, door_source());
    bootstrap::Newcomer newcomer(std::move(source), settings_.job, settings_.protection.key, deadline_, steady_clock());
    for (;;) {
      Settings settings = settings_;
      bootstrap::MeshListener listener;
      const auto make_card = [&](const std::string& host) -> Result<std::string> {
        settings.towards = host;
        QCCL_ASSIGN(listener, listen(settings));
        return bootstrap::encode_card(listener.card);
      };
      QCCL_ASSIGN(const Seat seat, newcomer.wait_for_seat(make_card));
      auto world = meet(
          seat, std::move(settings), std::move(listener), [&] { return newcomer.look(); }, door);
      if (newcomer.settle(world.ok())) {
        if (world && door != nullptr && through_store()) list(*door);
        return world;
      }
      if (!world && !may_pass(world.error().kind)) return world;
      const std::string why = world ? "the members did not all meet" : world.error().message;
      log(LogLevel::warning, "waits at the door of the job again: " + why);
    }
  }

 private:
  bool through_store() const { return *settings_.options.join == kThroughStore; }

  Status check() const {
    if (!init_.rank && !init_.world && (init_.store == nullptr || through_store())) return {};
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("a process that joins an open job ({}) gets its rank there: give init() no rank or "
                               "world, and a store only to join through it (\"store\")",
                               source_));
  }

  Result<bootstrap::DoorSource> door_source() const {
    if (through_store()) {
      // Checked before the first look.
      if (init_.store == nullptr) QCCL_TRY(bootstrap::discover_store(init_, environment));
      return bootstrap::DoorSource{.find = [this] { return listed_doors(); }, .is_list = true};
    }
    QCCL_ASSIGN(auto doors, bootstrap::parse_doors(*settings_.options.join, source_));
    return bootstrap::fixed_doors(std::move(doors));
  }

  // A connection of its own each time: the store that rank 0 serves drops those that only read.
  Result<std::shared_ptr<Store>> store() const {
    if (init_.store != nullptr) return init_.store;
    QCCL_ASSIGN(const LaunchIdentity job, bootstrap::discover_store(init_, environment));
    const auto key = job.launcher_serves ? nullptr : settings_.protection.key;
    return std::shared_ptr<Store>(std::make_shared<TcpStore>(
        bootstrap::TcpStoreOptions{.host = job.master_address,
                                   .port = job.master_port,
                                   .deadline = deadline_,
                                   .clock = &steady_clock(),
                                   .secrets = {key, job.job, job.restart},
                                   .connect_by = saturating_add(steady_clock().now(), kStoreLimit),
                                   .retries = false,
                                   .answer_limit = kStoreLimit}));
  }

  Result<std::vector<bootstrap::DoorAddress>> listed_doors() const {
    QCCL_ASSIGN(const auto own_store, store());
    bootstrap::DoorList list(*own_store, settings_.job, settings_.protection.key, steady_clock());
    QCCL_ASSIGN(const auto listed, list.read());
    std::vector<bootstrap::DoorAddress> doors;
    for (const std::string& each : listed) {
      auto addresses = bootstrap::parse_doors(each, "the store's list");
      if (addresses) std::ranges::copy(*addresses, std::back_inserter(doors));
    }
    return doors;
  }

  void list(const bootstrap::Door& door) const {
    auto own_store = store();
    if (own_store) return comm::list_door(door, settings_, **own_store, steady_clock());
    log(LogLevel::warning, "no store to list this rank's door in: " + own_store.error().message);
  }

  const InitOptions& init_;
  const Settings settings_;
  const std::string source_;  // of the doors
  const TimePoint deadline_;
};

}  // namespace

std::shared_ptr<CommunicatorState> join_job(const InitOptions& init) {
  Settings settings = comm::merge_options(init).take_or_throw();
  if (!settings.options.join) return nullptr;
  if (const auto filter = bootstrap::find_interface_filter(environment)) {
    settings.interface_filter = filter->value;
    settings.filter_source = filter->name;
  }
  return Joining(init, std::move(settings)).run().take_or_throw();
}

}  // namespace qccl::internal
