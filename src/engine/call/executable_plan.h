// A collective that every rank of a group can run: what they agree on, and what one rank makes of it once and runs any
// number of times: its codec, and this rank's schedule and streams.
//
// A stream carries the slices of one chunk from one rank to another in one phase, in order. Each belongs to a lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/pooled.h"
#include "base/rank.h"
#include "codec/codec.h"
#include "engine/call/resolved_call.h"
#include "plan/plan.h"
#include "qccl/compression.h"
#include "qccl/types.h"
#include "wire/frame.h"

namespace qccl::engine {

class ExecutablePlan;

// Slices of a stream that may be on their way or waiting between near ranks: 8 x 128 KiB cover 1 ms at 8 Gbit/s.
inline constexpr std::uint64_t kWindow = 8;
// The same for calls on device memory. With 6, two streams leave a quarter of a pair's slots in shared memory free, so
// that no frame is copied out of the memory that devices read (transport/shm/frame_queue.h).
inline constexpr std::uint64_t kDeviceWindow = 6;

struct Stream {
  GroupRank peer{};
  std::uint16_t phase;
  std::uint32_t chunk;
  std::size_t lane;
  std::uint64_t slices;
  std::uint64_t payload_limit;  // the most bytes of all its slices
  std::uint64_t eager_slices;   // the first ones, which may go before a grant
  std::uint64_t window;         // slices that may be on their way or waiting; at least eager_slices
  // Slices that are worth a grant: half a window between near ranks, for fewer frames; a quarter between distant ones,
  // where a window is a round trip.
  std::uint64_t least_grant;
  // Small enough to go without a grant.
  bool is_eager() const { return eager_slices == slices; }
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

 private:
  void share_window(std::uint64_t bytes);
};

// The header of a frame of the stream; `call` has the operation's group, sequence and fingerprint.
wire::FrameHeader frame_header(const wire::FrameHeader& call, wire::FrameKind kind, const Stream& stream,
                               std::uint64_t slice);

// Made once for each different call (PlanCache) and never changed. Shared by the group's cache, the operations in
// flight and those kept for reuse. Any thread may read it.
class ExecutablePlan {
 public:
  // For rank `rank` of a group of `world`. `codec` is that of call.compression, null for none.
  ExecutablePlan(const ResolvedCall& call, int world, GroupRank rank, std::shared_ptr<const Codec> codec);
  ExecutablePlan(const ExecutablePlan&) = delete;
  ExecutablePlan& operator=(const ExecutablePlan&) = delete;

  const ResolvedCall& call() const { return *call_; }
  // Outlives the plan: late frames still name the call.
  const std::shared_ptr<const ResolvedCall>& shared_call() const { return call_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  const Codec* codec() const { return codec_.get(); }  // null: raw
  const std::shared_ptr<const Codec>& shared_codec() const { return codec_; }
  std::uint64_t slice_elements() const { return slice_elements_; }
  // Slices of a stream of so many elements, and the elements of one of them. A stream without elements (a barrier's)
  // has one slice without payload.
  std::uint64_t slice_count(std::uint64_t elements) const;
  std::size_t slice_length(std::uint64_t elements, std::uint64_t slice) const;
  // The most bytes that so many elements take as payload; `raw`: uncompressed whatever the codec.
  std::size_t payload_limit(std::uint64_t elements, bool raw) const;
  // The bytes of their payload, which lies at the front of `source`; nothing if it is none. Of codecs that have kernels
  // for devices.
  std::optional<std::size_t> find_payload_bytes(ConstBytes source, std::uint64_t elements, bool raw) const;
  // Has no lanes if the call goes through cells.
  const plan::RankSchedule& schedule() const { return schedule_; }
  const StreamLayout& streams() const { return streams_; }
  // Elements of the caller's buffers on this rank.
  std::uint64_t input_elements() const { return input_elements_; }
  std::uint64_t output_elements() const { return output_elements_; }

 private:
  const std::shared_ptr<const ResolvedCall> call_;
  const std::uint64_t fingerprint_;
  const std::shared_ptr<const Codec> codec_;
  const std::uint64_t slice_elements_;
  const std::uint64_t input_elements_;
  const std::uint64_t output_elements_;
  const plan::RankSchedule schedule_;
  const StreamLayout streams_;
};

}  // namespace qccl::engine
