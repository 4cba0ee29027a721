#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>

#include "base/clock.h"
#include "choice/sites.h"

namespace qccl::comm {

// What a group's members agree on when they open it.
struct GroupAgreement {
  bool has_board = false;
  Distance distance;
};

// How a group comes to be.
struct GroupOrigin {
  std::optional<std::uint64_t> parent{};  // its members make the group together: fails at once if the parent fails
  std::optional<Nanoseconds> timeout{};   // of the agreement; unset: the job's
  bool may_be_lost = false;               // a group that fails while it opens is not an error, but one that has failed
  std::stop_token stop{};                 // aborts the agreement, on all members
};

}  // namespace qccl::comm
