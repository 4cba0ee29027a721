// The contract of a transport: frames between the ranks of a job, in order per sender, until a
// peer is lost.
//
// A frame here is opaque bytes, at most kMaxFrameBytes: the engine's header (src/wire/frame.h)
// and a payload of at most one slice.
//
// A method that runs out of memory throws std::bad_alloc. Nothing is lost then, and the method can be called again. The
// exceptions are progress() and withdraw(), which may lose frames: after their exception the caller must give up
// everything it receives.
//
// Threads: every method except wake() is called by one thread at a time (the engine's driver);
// wake() may be called from any thread. Nothing here blocks except sleep().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/rank.h"
#include "base/result.h"

namespace qccl {

// A slice is at most 256 KiB of payload; 64 bytes hold the frame header.
inline constexpr std::size_t kMaxPayloadBytes = 256 * 1024;
inline constexpr std::size_t kFrameHeaderBytes = 64;
inline constexpr std::size_t kMaxFrameBytes = kMaxPayloadBytes + kFrameHeaderBytes;

// A received frame. It stays valid until release(); a receiver may hold any number and
// release them in any order. A transport whose slots run short copies what it delivers.
struct ReceivedFrame {
  WorldRank peer;
  ConstBytes bytes;  // header and payload; of a frame whose payload was placed, the header
  void* slot = nullptr;
  ConstBytes placed{};  // the payload, if it was placed: see PayloadPlacement

  bool is_placed() const { return placed.data() != nullptr; }
  // `bytes` is at least a header.
  ConstBytes payload() const { return is_placed() ? placed : bytes.subspan(kFrameHeaderBytes); }
};

// Says where the payloads of incoming frames belong, so that a transport that reads a stream writes them there
// directly.
class PayloadPlacement {
 public:
  virtual ~PayloadPlacement() = default;
  // Called during progress(), once for each frame of `peer` whose header (kFrameHeaderBytes) has arrived. Returns
  // memory for its whole payload, or null. The transport may write there until receive() hands out the frame, or until
  // withdraw(); the memory must stay valid that long.
  virtual std::byte* place(WorldRank peer, ConstBytes header) = 0;
};

// data obeys pacing; control (grants, heartbeats, poison) is exempt.
enum class TrafficClass : std::uint8_t { data, control };

// Shared memory for small operations (the board). Each rank writes its own cell of a group and reads the other ranks'.
// See engine/board_operation for the protocol.
inline constexpr std::size_t kBoardPayloadBytes = 8192;
struct ExchangeCell {
  std::uint64_t sequence = 0;  // number of this board operation in its group, from 1
  std::uint64_t digest = 0;    // fingerprint of the call
  std::uint32_t payload_bytes = 0;
  const std::byte* payload = nullptr;  // kBoardPayloadBytes of shared memory, written by another rank
};

class ExchangeCells {
 public:
  virtual ~ExchangeCells() = default;
  // Takes one of this rank's cells for `group`; false if none is free.
  virtual bool open(std::uint64_t group) = 0;
  virtual void close(std::uint64_t group) = 0;
  // Publishes this rank's cell for board operation `sequence`; at most kBoardPayloadBytes. Overwrites the cell
  // published for sequence - 2. Wakes no rank: see ring().
  virtual void publish(std::uint64_t group, std::uint64_t sequence, std::uint64_t digest, ConstBytes payload) = 0;
  // Wakes the sleeping members of `group`. Call it once after every publish(), before the caller sleeps or does
  // anything else. It is separate from publish() because a fence right after the stores stalls until they have reached
  // the other cores.
  virtual void ring(std::uint64_t group) = 0;
  // The cell that `peer` published for exactly `sequence`; empty until then.
  virtual std::optional<ExchangeCell> read(std::uint64_t group, WorldRank peer, std::uint64_t sequence) = 0;
};

// Memory that ranks of this host map. A handle outlives the transport and may be
// dropped by any thread; freeing is local, and a peer that still maps freed memory reads zeros.
class SharedHeap {
 public:
  using Memory = std::shared_ptr<std::byte>;
  struct Block {
    std::uint64_t offset = 0;  // names it to the peers
    Memory memory;             // aligned to a page, zeroed
  };

  // Any thread may call these.
  virtual ~SharedHeap() = default;
  // A block owned by this rank. Fails with ResourceExhausted.
  virtual Result<Block> allocate(std::size_t bytes) = 0;
  // Whether the peer's blocks can be mapped.
  virtual bool reaches(WorldRank peer) const = 0;
  // The peer's block of that offset and size.
  virtual Result<Memory> map(WorldRank peer, std::uint64_t offset, std::size_t bytes) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Room for a frame to `peer` of up to `max_bytes`, to be written in place. Empty when there is
  // none now (or the peer is lost): try again after progress(). At most one reservation at a time.
  virtual Bytes reserve(WorldRank peer, std::size_t max_bytes, TrafficClass traffic) = 0;
  // Sends the first `actual_bytes` of the reservation (0 cancels it).
  virtual void commit(std::size_t actual_bytes) = 0;
  // Sends the first `head_bytes` of the reservation followed by `payload`, which is read before this returns: a
  // transport that writes bytes out at once copies nothing. Returns false and does nothing if the transport does not
  // support this.
  virtual bool commit_gathered(std::size_t head_bytes, ConstBytes payload) {
    static_cast<void>(head_bytes);
    static_cast<void>(payload);
    return false;
  }

  // The next frame that has arrived, from any peer.
  virtual std::optional<ReceivedFrame> receive() = 0;
  virtual void release(const ReceivedFrame& frame) = 0;
  // Sets the object that says where payloads belong; null: none. It must outlive the transport or be reset first.
  virtual void set_placement(PayloadPlacement* placement) { static_cast<void>(placement); }
  // Stops all use of memory given out by place(): nothing more is written there, nor read by frames that receive() has
  // yet to hand out. Payload that has arrived there moves to the transport's own memory.
  virtual void withdraw() {}

  // Moves bytes without blocking; true if anything moved.
  virtual bool progress() = 0;

  // A peer found dead since the last call (end of file, reset), with the cause. Each peer is reported once.
  struct PeerLoss {
    WorldRank peer;
    std::string cause;
  };
  virtual std::optional<PeerLoss> next_loss() = 0;
  // Ends the connection with `peer`, which sees end of file after everything committed to it. Nothing more is sent to
  // the peer or received from it, and its loss is not reported; received frames stay valid until release().
  virtual void disconnect(WorldRank peer) = 0;

  // Blocks until a frame may have arrived, a send may proceed, a peer is lost, wake() is called, or `deadline` passes.
  // May return early. The caller calls progress() again in any case.
  virtual void sleep(TimePoint deadline, const Clock& clock) = 0;
  // Ends the sleep() of another thread, or the next one.
  virtual void wake() = 0;
  // When a paced send may proceed; kForever if pacing holds nothing back.
  virtual TimePoint next_send_time() const { return kForever; }

  // True if the peer runs on this host: its frames cross no network and need no payload checksum.
  virtual bool is_local(WorldRank peer) const = 0;
  // Null if some rank is not on this host, or this transport has none.
  virtual ExchangeCells* board() { return nullptr; }
  // Null in the same cases.
  virtual SharedHeap* heap() { return nullptr; }
  // "shm", "tcp", "sim" for this peer, for reports.
  virtual const char* kind(WorldRank peer) const = 0;

  // True when everything committed has left this process (or its peer is lost).
  virtual bool flushed() const = 0;
  // Closes all connections. Idempotent.
  virtual void close() = 0;
};

}  // namespace qccl
