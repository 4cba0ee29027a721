#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qccl/error.h"

namespace qccl {
class Transport;
}

namespace qccl::comm {

// A group as its members know it. Never changes.
struct GroupIdentity {
  std::uint64_t id = 0;  // the same on all members, and never used again
  std::string name{};
  std::vector<int> ranks{};  // world ranks, by group rank
  int rank = 0;              // of this process, in the group

  int size() const { return static_cast<int>(ranks.size()); }
  int world_rank() const { return ranks[static_cast<std::size_t>(rank)]; }
  // A failure of this rank in the group: "QCCL rank 3, group 'world': all_reduce: ...".
  ErrorInfo failure(ErrorKind kind, const std::string& what) const;
  Error invalid_argument(const std::string& operation, const std::string& what) const;
};

// What a rank has measured to the other members of a group, in seconds.
struct RoundTrips {
  double longest = 0;
  double longest_near = 0;  // to those of its site
  int nearest = 0;          // the first member near this rank, or itself
};

// `sites`: of world ranks; empty: ranks less than a millisecond apart are near.
RoundTrips measured(const Transport& transport, const GroupIdentity& group, const std::vector<int>& sites = {});

}  // namespace qccl::comm
