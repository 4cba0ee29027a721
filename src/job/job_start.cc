#include "job/job_start.h"

#include <utility>

#include "base/log.h"
#include "base/options.h"
#include "bootstrap/door/door_list.h"

namespace qccl::comm {

Result<JobStart> start_of_job(const InitOptions& init) {
  QCCL_ASSIGN(Settings settings, merge_options(init));
  QCCL_ASSIGN(bootstrap::LaunchIdentity launch,
              bootstrap::discover_identity(init, [](const char* name) { return environment(name); }));
  settings.interface_filter = launch.interface_filter;
  settings.filter_source = launch.filter_source;
  settings.towards = launch.master_address;
  return JobStart{std::move(launch), std::move(settings), init.store};
}

Result<std::shared_ptr<bootstrap::Door>> open_door(const Settings& settings) {
  if (!settings.options.open) return std::shared_ptr<bootstrap::Door>();
  return bootstrap::Door::open({.job = settings.job,
                                .port = settings.options.door_port,
                                .interface_filter = settings.interface_filter,
                                .filter_source = settings.filter_source,
                                .key = settings.protection.key});
}

void list_door(const bootstrap::Door& door, const Settings& settings, Store& store, const Clock& clock) {
  const Status listed = bootstrap::DoorList(store, settings.job, settings.protection.key, clock).add(door.address());
  if (!listed.ok()) log(LogLevel::warning, "the store does not list this rank's door: " + listed.error().message);
}

}  // namespace qccl::comm
