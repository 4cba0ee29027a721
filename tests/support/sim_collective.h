// One collective on all ranks of a SimWorld, with buffers at given placements and guards at their ends.
#pragma once

#include <string>
#include <vector>

#include "support/elements.h"
#include "support/sim_world.h"

namespace qccl::testing {

// The placement of a call's buffers: their distances from a 64-byte boundary.
struct Placement {
  bool in_place = false;
  std::size_t input_offset = 0;
  std::size_t output_offset = 0;
};

// A rank's memory of one call, between guard bytes. Broadcasts are always in place, as in the public
// API. Must not move, because operations hold pointers into it.
class RankBuffers {
 public:
  RankBuffers(const engine::ResolvedCall& call, int rank, int world, const ByteVector& input,
              const Placement& placement);
  RankBuffers(RankBuffers&&) = default;

  const std::byte* input() const { return input_; }
  std::byte* output() const { return output_; }
  ByteVector result() const { return {output_, output_ + output_bytes_}; }
  // "the guard behind the output was overwritten", or "".
  std::string damage() const;

 private:
  struct Memory {
    std::vector<std::byte> bytes;
    std::byte* begin = nullptr;
    std::size_t size = 0;
  };
  static Memory allocate(std::size_t size, std::size_t offset);
  static bool guards_stand(const Memory& memory);

  Memory first_;   // the input, or both in place
  Memory second_;  // the output otherwise
  ByteVector original_;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::size_t output_bytes_ = 0;
  bool in_place_ = false;
};

struct CollectiveResult {
  std::string problem;              // a failure, or the damage that a rank did to its memory
  std::vector<ByteVector> outputs;  // by rank
};

// Posts the call on all ranks, runs it to its end and checks every rank's memory. `calls` is by rank, if
// they differ: all_to_all with counts.
CollectiveResult run_collective(SimWorld& world, const engine::ResolvedCall& call,
                                const std::vector<ByteVector>& inputs, const Placement& placement = {});
CollectiveResult run_collective(SimWorld& world, const std::vector<engine::ResolvedCall>& calls,
                                const std::vector<ByteVector>& inputs, const Placement& placement = {});

// The element count of the largest input of any rank.
std::uint64_t most_input_elements(const engine::ResolvedCall& call, int world);

// "rank 2, element 17: 3f800000 instead of 40000000", or "" if all ranks hold what is expected.
std::string difference(DataType type, const std::vector<ByteVector>& outputs, const std::vector<ByteVector>& expected);

}  // namespace qccl::testing
