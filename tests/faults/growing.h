// Shared by the tests of jobs that grow: members with doors, and newcomers that know them from the test's store.
#pragma once

#include <string>
#include <utility>

#include "faults/job.h"

namespace qccl::testing {

inline InitOptions open_options(const Rank& rank, int members) {
  InitOptions init = rank.options();
  init.world = members;
  init.open = true;
  return init;
}

inline std::string doors_of(Store& store, int members) {
  std::string doors;
  for (int member = 0; member < members; ++member) {
    const auto door = store.get("door " + std::to_string(member), std::chrono::seconds(30));
    doors += (member == 0 ? "" : ",") + door.value_or("none");
  }
  return doors;
}

// Joins at the doors that the members have left in the test's store.
inline InitOptions newcomer_options(const Rank& rank, int members) {
  InitOptions init = rank.options();
  const auto store = std::exchange(init.store, nullptr);
  init.rank.reset();
  init.world.reset();
  init.join = doors_of(*store, members);
  return init;
}

inline Communicator start_member(Rank& rank, int members) {
  Communicator comm = rank.init(open_options(rank, members));
  rank.options().store->set("door " + std::to_string(rank.rank()), comm.door());
  return comm;
}

}  // namespace qccl::testing
