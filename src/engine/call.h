// One collective call as the engine sees it: what must agree between ranks (Call), and what is
// this rank's own business (Post).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/pooled.h"
#include "codec/codec.h"
#include "engine/feedback_state.h"
#include "engine/work_state.h"
#include "qccl/compression.h"
#include "qccl/types.h"

namespace qccl::plan {
class WorkMeter;
}

namespace qccl::engine {

// Every field must be the same on all ranks of the group, but for the counts of an all_to_all.
struct Call {
  Collective collective = Collective::barrier;
  std::uint64_t count = 0;  // elements, as the public call counts them; 0 with `counts`
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  Compression compression;
  Algorithm algorithm = Algorithm::one_shot;  // never automatic
  bool board = false;                         // goes through shared memory cells
  bool error_feedback = false;                // the caller gave a state, whether or not it is used
  std::uint64_t region = 0;                   // reduces a SharedRegion in place; 0: none
  std::uint64_t region_offset = 0;            // bytes
  std::size_t slice_bytes = 0;                // set by the engine from its options
  // The v forms: each rank's count; all_to_all: what this rank sends to each rank, then what it
  // receives from each.
  PooledVector<std::uint64_t> counts{};
  PooledVector<int> hosts{};  // of each rank, for hierarchical plans; set by the engine

  friend bool operator==(const Call&, const Call&) = default;
  std::uint64_t fingerprint() const;
  // "all_reduce(count=1024, float32, sum, sra, minmax:bits=4,bucket_size=1024)"
  std::string describe() const;
};

// A buffer of the same size on every rank of a group, which those of its host map.
struct SharedRegion {
  std::uint64_t id = 0;  // the same on all ranks; from 1
  std::size_t bytes = 0;
  bool on_board = false;                              // all ranks map all, and meet on the group's board
  std::vector<std::shared_ptr<std::byte>> of_member;  // by group rank; null on other hosts
};

// What makes a call a message: send or recv, of call.count elements of call.type.
struct Message {
  bool incoming = false;
  int peer = 0;  // group rank; kAnySource for one that takes a message of any
  int tag = 0;
};

// A call with its buffers. They stay the caller's, and must stay valid until `work` is done.
struct Post {
  std::uint64_t group = 0;
  Call call;
  std::optional<Message> message{};  // instead of a collective
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  double premul_factor = 1;            // premul_sum: times the input; ranks may differ
  std::shared_ptr<const Codec> codec;  // null: raw
  // What tells this call's random numbers from another's (codec/draw.h). Nothing: the group's own
  // count of compressed collectives, which the engine fills in.
  std::optional<std::uint64_t> draw_counter{};
  std::shared_ptr<internal::FeedbackState> feedback{};  // only with a codec
  std::shared_ptr<const SharedRegion> region{};
  Nanoseconds timeout{0};
  std::shared_ptr<internal::WorkState> work;
  TimePoint posted{};      // for the log; not set: when the engine gets it
  std::string log_name{};  // what the log calls it; "": what it is
  bool is_logged = true;   // else it is the library's own business
  bool awaited = false;    // a hint: the thread that posts it will drive it
  // For the simulator: there are no buffers, frames have the size of their payload (of a codec the
  // largest) and nothing is computed, but `meter` (null: nobody) is told what would have been. The
  // transport need not carry payloads of data.
  bool size_only = false;
  plan::WorkMeter* meter = nullptr;
};

using PostList = PooledVector<Post>;

// It is a MappedOperation.
inline bool reduces_on_board(const Post& post) { return post.region != nullptr && post.region->on_board; }

// Elements of the caller's input and output buffers on `rank`.
std::uint64_t input_elements(const Call& call, int world, int rank);
std::uint64_t output_elements(const Call& call, int world, int rank);
// Of rank `rank`'s piece, where ranks have pieces, and of those before it.
std::uint64_t piece_elements(const Call& call, int rank);
std::uint64_t piece_begin(const Call& call, int rank);

}  // namespace qccl::engine
