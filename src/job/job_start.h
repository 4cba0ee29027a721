#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/door/door.h"
#include "bootstrap/launcher/launch_identity.h"
#include "bootstrap/mesh/full_mesh.h"
#include "job/settings.h"
#include "qccl/store.h"

namespace qccl::comm {

// What the ranks of a job that has grown know before it begins.
struct GrownStart {
  bootstrap::MeshListener listener;
  bootstrap::GatheredCards cards;
  std::function<Status()> look;             // fails once the ranks give up
  std::shared_ptr<bootstrap::Door> door{};  // of the job that grew to this one
};

// How a job begins on this rank.
struct JobStart {
  bootstrap::LaunchIdentity launch;
  Settings settings;
  std::shared_ptr<Store> store{};     // where its ranks meet; null: where `launch` says
  std::optional<GrownStart> grown{};  // else it opens a door if the settings say so, and lists it in the store
};

// A door as the settings say; null if they say none.
Result<std::shared_ptr<bootstrap::Door>> open_door(const Settings& settings);

// Adds the door to the list in the store of the start. Newcomers can find the members without it, so a failure is only
// logged.
void list_door(const bootstrap::Door& door, const Settings& settings, Store& store, const Clock& clock);

// As init()'s options, the launcher and the environment say. Contacts no peer.
Result<JobStart> start_of_job(const InitOptions& init);

}  // namespace qccl::comm
