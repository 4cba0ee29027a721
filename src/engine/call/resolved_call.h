#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/pooled.h"
#include "qccl/compression.h"
#include "qccl/types.h"

namespace qccl::engine {

// Where a call's buffers lie.
enum class MemoryKind : std::uint8_t { host, device };

// A collective with every choice made. A value. Every field is the same on all ranks of the group, except the counts of
// an all_to_all.
struct ResolvedCall {
  Collective collective = Collective::barrier;
  std::uint64_t count = 0;  // elements, as the public call counts them; 0 with `counts`
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  int averaged = 0;  // what avg divides by, if not by the number of the group's ranks
  int root = 0;
  Compression compression{};
  Algorithm algorithm = Algorithm::one_shot;  // never automatic
  bool board = false;                         // goes through shared memory cells
  bool error_feedback = false;                // the caller gave a state, whether or not it is used
  std::uint64_t region = 0;                   // reduces a mapped region in place; 0: none
  std::uint64_t region_offset = 0;            // bytes
  std::size_t slice_bytes = 0;                // the job's
  std::uint64_t window_bytes = 0;             // distant ranks: encoded bytes on their way to a rank; 0: ranks are near
  // The v forms: each rank's count; all_to_all: what this rank sends to each rank, then what it
  // receives from each.
  PooledVector<std::uint64_t> counts{};
  PooledVector<int> hosts{};   // of each rank, for hierarchical plans only
  PooledVector<int> shares{};  // what each rank owns (plan::Request::shares), for plans with plan::uses_shares() only
  MemoryKind memory = MemoryKind::host;

  friend bool operator==(const ResolvedCall&, const ResolvedCall&) = default;
  std::uint64_t fingerprint() const;
  // "all_reduce(count=1024, float32, sum, sra, minmax:bits=4,bucket_size=1024)"
  std::string describe() const;
};

// What an average of the call's group is the sum divided by.
inline int divisor_of(const ResolvedCall& call, int world) { return call.averaged > 0 ? call.averaged : world; }

// Elements of the caller's input and output buffers on `rank`.
std::uint64_t input_elements(const ResolvedCall& call, int world, int rank);
std::uint64_t output_elements(const ResolvedCall& call, int world, int rank);
// Elements of rank `rank`'s piece, where ranks have pieces, and of all pieces before it.
std::uint64_t piece_elements(const ResolvedCall& call, int rank);
std::uint64_t piece_begin(const ResolvedCall& call, int rank);

// True if every rank's part of the call fits a cell and nothing is compressed.
bool fits_board(const ResolvedCall& call, int world);

}  // namespace qccl::engine
