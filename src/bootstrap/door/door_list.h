// The doors of an open job, in the store that the job started with: for newcomers that know the store and no member.
//
// An entry stays when its door has closed. The seal (card_seal.h) is that of rank N of generation 0 of the door's name,
// which no rank's card has.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/meeting/card_seal.h"
#include "bootstrap/protocol/key_space.h"
#include "qccl/store.h"
#include "secure/key.h"

namespace qccl::bootstrap {

class DoorList {
 public:
  // Store and clock outlive the object.
  DoorList(Store& store, const std::string& job, std::shared_ptr<const secure::Key> key, const Clock& clock);

  // ResourceExhausted if the store has kMostListedDoors; else the store's errors.
  Status add(const std::string& door);
  // What Door::address() says of each, the newest first. InvalidArgument if there are only doors of processes with
  // another key, or none; else the store's errors.
  Result<std::vector<std::string>> read();

 private:
  KeySpace keys_;
  CardSeal seal_;
};

}  // namespace qccl::bootstrap
