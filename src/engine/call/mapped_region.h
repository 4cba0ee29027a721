// A buffer of shared memory that every rank of a host maps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace qccl::engine {

// A buffer of the same size on every rank of a group, which those of its host map.
struct MappedRegion {
  std::uint64_t id = 0;  // the same on all ranks; from 1
  std::size_t bytes = 0;
  bool on_board = false;                              // all ranks map all, and meet on the group's board
  std::vector<std::shared_ptr<std::byte>> of_member;  // by group rank; null on other hosts
};

}  // namespace qccl::engine
