// The streams of a plan on one rank, made once for the plan.
//
// A stream carries the slices of one chunk from one rank to another in one phase, in order. Each belongs to a lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "base/rank.h"
#include "wire/frame.h"

namespace qccl::engine {

class ExecutablePlan;

// Slices of a stream that may be on their way or waiting: 8 x 128 KiB cover 1 ms at 8 Gbit/s.
inline constexpr std::size_t kWindow = 8;

struct Stream {
  GroupRank peer;
  std::uint16_t phase;
  std::uint32_t chunk;
  std::size_t lane;
  std::uint64_t slices;
  std::uint64_t payload_limit;  // the most bytes of all its slices
  bool eager;                   // small enough to go without a grant
  // The peer learns of the call by this stream's grant (inbound) or request (outbound) alone.
  bool announces = false;
};

// The streams of one direction.
class StreamList {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;

  void add(const Stream& stream) { streams_.push_back(stream); }
  // After the last add(): for find().
  void sort_addresses();

  std::size_t size() const { return streams_.size(); }
  const Stream& operator[](std::size_t index) const { return streams_[index]; }
  auto begin() { return streams_.begin(); }
  auto end() { return streams_.end(); }
  // The stream that a peer's frame names, or kNone.
  std::size_t find(GroupRank peer, std::uint16_t phase, std::uint32_t chunk) const;

 private:
  struct Address {
    GroupRank peer;
    std::uint16_t phase;
    std::uint32_t chunk;
    std::uint32_t index;
    auto key() const { return std::tuple(peer, phase, chunk); }
  };

  std::vector<Stream> streams_;
  std::vector<Address> addresses_;
};

struct StreamLayout {
  StreamLayout(const ExecutablePlan& plan, int world);

  StreamList inbound;
  StreamList outbound;
  std::vector<std::vector<std::size_t>> first;  // [lane][step]: the index of the step's first stream
};

// The header of a frame of the stream; `call` has the operation's group, sequence and fingerprint.
wire::FrameHeader frame_header(const wire::FrameHeader& call, wire::FrameKind kind, const Stream& stream,
                               std::uint64_t slice);

}  // namespace qccl::engine
