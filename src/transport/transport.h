// The contract of a transport: it carries frames between the ranks of a job, in order for each sender, until a peer is
// lost.
//
// A frame is opaque bytes, at most kMaxFrameBytes: the engine's header (wire/frame.h) and a payload of at most one
// slice.
//
// A method that runs out of memory throws std::bad_alloc. It has then lost nothing and can be called again. The
// exceptions are progress() and withdraw(), which may lose frames: after they throw, the caller must give up everything
// that it receives.
//
// Threads: one thread at a time calls these methods, except wake(), which any thread may call. Only sleep() and
// close() block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/rank.h"
#include "base/result.h"
#include "transport/reservation.h"

namespace qccl {

// A slice is at most 256 KiB of payload; 64 bytes hold the frame header.
inline constexpr std::size_t kMaxPayloadBytes = 256 * 1024;
inline constexpr std::size_t kFrameHeaderBytes = 64;
inline constexpr std::size_t kMaxFrameBytes = kMaxPayloadBytes + kFrameHeaderBytes;

// A received frame. It stays valid until release(). A receiver may hold any number of frames and release them in any
// order; a transport whose slots run short delivers copies.
struct ReceivedFrame {
  WorldRank peer;
  ConstBytes bytes;      // header and payload; only the header if the payload was placed
  void* slot = nullptr;  // the transport's
  ConstBytes placed{};   // the payload, if it was placed: see PayloadPlacement

  bool is_placed() const { return placed.data() != nullptr; }
  // Precondition: `bytes` has a whole header.
  ConstBytes payload() const { return is_placed() ? placed : bytes.subspan(kFrameHeaderBytes); }
};

// Gives the destinations of incoming payloads to a transport that reads a stream, which then writes payloads there
// directly.
class PayloadPlacement {
 public:
  virtual ~PayloadPlacement() = default;
  // Returns memory for the whole payload of the frame with this header (kFrameHeaderBytes), or null. Called during
  // progress(), once for each frame of `peer`. The transport may write to the memory until receive() hands out the
  // frame or withdraw() is called; it must stay valid that long.
  virtual std::byte* find_destination(WorldRank peer, ConstBytes header) = 0;
};

// Shared memory for small operations (the board): each rank publishes in its own cell of a group and reads the cells of
// the other ranks. engine/run/cell_operation.h has the protocol.
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
  // Publishes this rank's cell for board operation `sequence`, with at most kBoardPayloadBytes. Overwrites the cell of
  // sequence - 2. Wakes no rank: see ring().
  virtual void publish(std::uint64_t group, std::uint64_t sequence, std::uint64_t digest, ConstBytes payload) = 0;
  // Wakes the sleeping members of `group`. Call it once after every publish(), before the caller sleeps or turns to
  // anything else. It is separate because a fence right after the stores of publish() stalls until they have reached
  // the other cores.
  virtual void ring(std::uint64_t group) = 0;
  // The cell that `peer` published for exactly `sequence`; empty until then.
  virtual std::optional<ExchangeCell> read(std::uint64_t group, WorldRank peer, std::uint64_t sequence) = 0;
};

// Memory that the ranks of this host map. A handle outlives the transport, and any thread may drop it. Only the owner's
// pages are freed: a peer that still maps them reads zeros.
class SharedHeap {
 public:
  using Memory = std::shared_ptr<std::byte>;
  struct Block {
    std::uint64_t offset = 0;  // the block's name for peers
    Memory memory;             // aligned to a page, zeroed
  };

  // Any thread may call these.
  virtual ~SharedHeap() = default;
  // A block owned by this rank. ResourceExhausted if there is no memory.
  virtual Result<Block> allocate(std::size_t bytes) = 0;
  // Whether the peer's blocks can be mapped.
  virtual bool reaches(WorldRank peer) const = 0;
  // The peer's block of that offset and size.
  virtual Result<Memory> map(WorldRank peer, std::uint64_t offset, std::size_t bytes) = 0;
};

// Frames to ranks of this host that something else than the caller writes, a device for example. Threads: as Transport.
class FrameRooms {
 public:
  virtual ~FrameRooms() = default;
  // Room for a frame that is sent later, by Transport::commit(). None if there is none now, the peer is lost, or it is
  // on another host. It is sent or ends once nothing writes there any more.
  virtual Reservation hold(WorldRank peer, std::size_t max_bytes) = 0;

  struct Memory {
    std::shared_ptr<const void> owner;  // keeps it mapped
    Bytes bytes;
  };
  // All memory in which such rooms lie, and in which frames of this host's ranks arrive unless slots run short. The
  // same at all times.
  virtual std::vector<Memory> memory() const = 0;
};

// What a transport has for the ranks of this host. Null: nothing.
struct HostMemory {
  SharedHeap* heap = nullptr;
  FrameRooms* rooms = nullptr;
};

// All functions are pure, so that one that passes calls on to another transport leaves none out. A transport that
// carries frames itself is a BasicTransport.
class Transport {
 public:
  virtual ~Transport() = default;

  // Room for a frame to `peer` of up to `max_bytes`. None if there is none now or the peer is lost: retry after
  // progress().
  virtual Reservation reserve(WorldRank peer, std::size_t max_bytes, TrafficClass traffic) = 0;
  // Sends the first `bytes` of the room, at least one, and then `payload`, which lies elsewhere and is read before this
  // returns; a transport that can write it out at once makes no copy. If the peer was lost meanwhile, the room goes
  // back.
  virtual void commit(Reservation&& room, std::size_t bytes, ConstBytes payload) = 0;

  // The next frame that has arrived, from any peer.
  virtual std::optional<ReceivedFrame> receive() = 0;
  virtual void release(const ReceivedFrame& frame) = 0;
  // Sets the source of destinations for payloads; null: none. It must outlive the transport or be reset first.
  virtual void set_placement(PayloadPlacement* placement) = 0;
  // Ends all use of memory from find_destination(): nothing is written there any more, and no frame still to be handed
  // out refers to it. Payload that has arrived there moves to the transport's own memory.
  virtual void withdraw() = 0;

  // Moves bytes without blocking; true if anything moved.
  virtual bool progress() = 0;

  // How a connection ended.
  enum class End {
    by_peer,  // end of file or reset: the peer's system ended it
    broken,   // this side can't use it any more: it gets no answer, or the bytes fail authentication
    faulty    // the peer sent what no rank sends. It can still be told, and must be given to disconnect()
  };
  // A peer whose connection was lost, and the cause. Each peer is reported once, after its frames; a faulty one once
  // more if its connection ends by itself.
  struct PeerLoss {
    WorldRank peer;
    std::string cause;
    End end = End::by_peer;
  };
  virtual std::optional<PeerLoss> next_loss() = 0;
  // Ends the connection with `peer`, which sees end of file after everything committed to it. Nothing more is sent to
  // the peer or received from it, and its loss is not reported. Received frames stay valid until release().
  virtual void disconnect(WorldRank peer) = 0;

  // Blocks until a frame may have arrived, a send may proceed, a peer is lost, wake() is called, or `deadline` passes.
  // May return early: call progress() again in any case.
  virtual void sleep(TimePoint deadline, const Clock& clock) = 0;
  // Ends the sleep() of another thread, or the next one.
  virtual void wake() = 0;
  // When a send that pacing refused may proceed; kForever if there is none.
  virtual TimePoint next_send_time() const = 0;

  // The shortest round trip to the peer that was measured; 0 if it is local or nothing was measured.
  virtual Nanoseconds round_trip(WorldRank peer) const = 0;
  // The bytes that the peer's machine has acknowledged since the start, the packets that were sent to it again, whether
  // bytes wait here for the network, whether the line loses packets by itself, not only where it is full, and how long
  // bytes were on their way. Nothing if nobody says.
  struct Acknowledged {
    std::uint64_t bytes = 0;
    std::uint64_t resent = 0;
    bool waits = false;
    bool loses = false;
    Nanoseconds busy{};
  };
  virtual Acknowledged acknowledged(WorldRank peer) const = 0;
  // Looks at what distant peers have acknowledged since the last call, and fits the connections to them to it.
  virtual void adapt(TimePoint now) = 0;
  // True if the peer runs on this host, so that its frames cross no network and need no payload checksum.
  virtual bool is_local(WorldRank peer) const = 0;
  // Null if not all ranks are on this host, or this transport has none.
  virtual ExchangeCells* board() = 0;
  virtual HostMemory host_memory() = 0;
  // How this peer is reached, for reports: "shm", "tcp" or "sim".
  virtual const char* kind(WorldRank peer) const = 0;

  // How many connections carry the frames to this peer.
  virtual int connections(WorldRank peer) const = 0;

  // True if everything committed has left this process, or its peer is lost.
  virtual bool flushed() const = 0;
  // How long close() waits while peers receive nothing.
  static constexpr Nanoseconds kClosePatience = std::chrono::seconds(2);
  virtual void set_close_patience(Nanoseconds patience) = 0;
  // Closes all connections, once the peers have received everything or have stopped receiving for that long (unless it
  // was set, for kClosePatience). Idempotent.
  virtual void close() = 0;
};

// The answers of a transport that places no payloads, limits no rate, measures nothing, shares no memory and has one
// connection to each peer.
class BasicTransport : public Transport {
 public:
  void set_placement(PayloadPlacement*) override {}
  void withdraw() override {}
  TimePoint next_send_time() const override { return kForever; }
  Nanoseconds round_trip(WorldRank) const override { return {}; }
  Acknowledged acknowledged(WorldRank) const override { return {}; }
  void adapt(TimePoint) override {}
  ExchangeCells* board() override { return nullptr; }
  HostMemory host_memory() override { return {}; }
  int connections(WorldRank) const override { return 1; }
  void set_close_patience(Nanoseconds) override {}
};

}  // namespace qccl
