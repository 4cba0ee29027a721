// Frame buffers and the two halves of a connection: FrameReader cuts a stream into frames, FrameWriter sends a bounded
// queue of whole frames, in order, as many in one call as fit.
//
// Receiving small frames: one read into a staging area (shared by all connections, so that it stays in cache) takes
// many, and each is copied out. A large payload is read straight to its destination, if PayloadPlacement has one, or
// into its frame's buffer; the same call reads the beginning of what follows into the staging area.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "os/net/socket.h"
#include "secure/stream.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace qccl::tcp {

class Connection;

// Lies right before the frame's bytes, which begin on a cache line (and so does the payload).
struct alignas(64) FrameBuffer {
  FrameBuffer* next = nullptr;  // in a FrameList or the pool's free list
  Connection* connection = nullptr;
  std::byte* placed = nullptr;  // of a received frame: its payload, if that is not in this buffer
  std::uint32_t bytes = 0;      // of the frame
  std::uint32_t filled = 0;     // received so far
  std::uint32_t number = 0;     // of a received frame; see wire/frame.h
  std::uint8_t size_class = 0;
  TrafficClass traffic = TrafficClass::data;
  bool is_last = false;  // of a received frame: nothing follows on its connection

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};
static_assert(sizeof(FrameBuffer) == 64);

// First in, first out, linked through FrameBuffer::next. Does not own.
class FrameList {
 public:
  bool empty() const { return first_ == nullptr; }
  FrameBuffer* front() const { return first_; }
  void push_back(FrameBuffer* frame) {
    frame->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = frame;
    last_ = frame;
  }
  FrameBuffer* pop_front() { return std::exchange(first_, first_->next); }

 private:
  FrameBuffer* first_ = nullptr;
  FrameBuffer* last_ = nullptr;
};

// Owns frame buffers by size class, reused last in, first out so that they stay in cache. Allocates nothing once it
// holds as many buffers of each class as are ever in use together. One thread.
class FrameBufferPool {
 public:
  FrameBufferPool() = default;
  ~FrameBufferPool() {
    for (FrameBuffer* buffer : all_) ::operator delete(buffer, kAlignment);
  }
  FrameBufferPool(const FrameBufferPool&) = delete;
  FrameBufferPool& operator=(const FrameBufferPool&) = delete;

  // A buffer for a frame of up to `bytes` (at most kMaxFrameBytes).
  FrameBuffer* take(std::size_t bytes) {
    QCCL_CHECK(bytes <= kMaxFrameBytes);
    std::uint8_t size_class = 0;
    while (kCapacities[size_class] < bytes) ++size_class;
    FrameBuffer* const free = free_[size_class];
    if (free == nullptr) return allocate(size_class);
    free_[size_class] = free->next;
    free->placed = nullptr;
    return free;
  }
  void put_back(FrameBuffer* buffer) { buffer->next = std::exchange(free_[buffer->size_class], buffer); }

 private:
  static constexpr std::array<std::size_t, 5> kCapacities{512, 4096, 16384, 65536 + kFrameHeaderBytes, kMaxFrameBytes};
  static constexpr std::align_val_t kAlignment{alignof(FrameBuffer)};

  FrameBuffer* allocate(std::uint8_t size_class) {
    if (all_.capacity() == all_.size()) all_.reserve(2 * all_.size() + 1);
    void* const memory = ::operator new(sizeof(FrameBuffer) + kCapacities[size_class], kAlignment);
    all_.push_back(new (memory) FrameBuffer{.size_class = size_class});
    return all_.back();
  }

  std::array<FrameBuffer*, kCapacities.size()> free_{};
  std::vector<FrameBuffer*> all_;
};
static_assert(std::is_trivially_destructible_v<FrameBuffer>);

inline constexpr std::size_t kStagingBytes = 64 * 1024;

// Shared by the connections of an endpoint.
struct SharedBuffers {
  FrameBufferPool pool;
  std::vector<std::byte> staging = std::vector<std::byte>(kStagingBytes);  // used within one call only
  std::size_t waiting_writers = 0;                                         // writers whose queue is not empty
};

class FrameReader {
 public:
  FrameReader(WorldRank peer, SharedBuffers& shared) : peer_(peer), shared_(&shared) {}

  struct ReadResult {
    std::size_t bytes = 0;                         // read from the socket
    std::string loss;                              // why no more frames will come; empty while they may
    Transport::End end = Transport::End::by_peer;  // of a loss
  };
  // Reads about `budget` bytes at most and appends the complete frames to `frames`, even when it reports a loss.
  // `placement` may be null. If memory for a frame runs out it throws std::bad_alloc; the start of the next frame is
  // then unknown, so later reads only drain the connection to its end.
  ReadResult read(secure::Stream& stream, std::size_t budget, PayloadPlacement* placement, FrameList& frames);

  // Moves the placed part of a half received payload to memory of its own, which also takes the rest. False if there is
  // no memory: no more frames will come, as in read().
  bool withdraw();
  // No more frames will come, as after bad_alloc in read().
  void stop();
  // Drops the half received frame.
  void clear();

 private:
  static constexpr std::size_t kLargePayloadBytes = 8 * 1024;  // copying it costs more than another read
  static constexpr std::size_t kPeekBytes = 1024;              // the next header and a small frame

  os::IoResult read_once(secure::Stream& stream, std::size_t& offered);
  Status parse(std::size_t staged, PayloadPlacement* placement, FrameList& frames);
  Status begin_frame(const std::byte* header, PayloadPlacement* placement);
  std::size_t fill_frame(ConstBytes source, FrameList& frames);
  Bytes missing_part() const;
  std::string describe_end(const os::IoResult& io) const;

  WorldRank peer_;
  SharedBuffers* shared_;
  FrameBuffer* current_ = nullptr;                      // the frame being received: its header is complete
  std::array<std::byte, wire::kHeaderBytes> header_{};  // the part of a header received so far
  std::size_t header_bytes_ = 0;                        // 0 while there is a current frame
  bool expect_large_ = false;                           // the last frame was large
  bool stopped_ = false;
};

// A copy of a frame with its placed payload in its own memory; puts `frame` back into the pool.
FrameBuffer* with_own_payload(FrameBuffer* frame, FrameBufferPool& pool);

class FrameWriter {
 public:
  // `limit_bytes` bounds the waiting data. Control frames have their own bound, reached only if the peer reads nothing.
  FrameWriter(SharedBuffers& shared, std::size_t limit_bytes) : shared_(&shared), limit_bytes_(limit_bytes) {}

  // True if a frame of up to `bytes` may join the queue.
  bool has_room(std::size_t bytes, TrafficClass traffic) const {
    const std::size_t limit = traffic == TrafficClass::data ? limit_bytes_ : kControlLimitBytes;
    const std::size_t used = queued_[static_cast<std::size_t>(traffic)];
    return used == 0 || used + bytes <= limit;
  }

  // Sends `frame` at once if nothing waits before it, otherwise queues it. The first frame of a burst leaves without
  // delay; the small frames behind it leave together, once enough have gathered or at the next flush(). `burst` is its
  // number. `outside` are the frame's last bytes if they lie elsewhere; those not sent at once are copied.
  os::IoResult push(secure::Stream& stream, FrameBuffer* frame, std::uint64_t burst, ConstBytes outside = {});
  // Sends from the queue, at most about kFlushBytes. bytes == 0 if nothing could be sent.
  os::IoResult flush(secure::Stream& stream);

  bool empty() const { return queue_.empty(); }
  std::size_t queued_bytes() const { return queued_[0] + queued_[1]; }
  // Has gathered frames that the socket may still take.
  bool gathers() const { return !empty() && !blocked_; }
  // Drops all waiting frames.
  void clear();

 private:
  // Limit for one progress() call: more would keep the engine from decoding data that has arrived.
  static constexpr std::size_t kFlushBytes = 512 * 1024;
  // Beyond this size the fixed cost of a call no longer matters.
  static constexpr std::size_t kGatherBytes = 64 * 1024;
  static constexpr std::size_t kControlLimitBytes = 512 * 1024;

  void enqueue(FrameBuffer* frame);
  void drop_front();
  void consume(std::size_t bytes);

  SharedBuffers* shared_;
  std::size_t limit_bytes_;
  FrameList queue_;
  std::uint64_t last_burst_ = 0;
  bool blocked_ = false;            // the socket took less than it was offered
  std::size_t front_sent_ = 0;      // bytes of the first frame already sent
  std::size_t queued_[2] = {0, 0};  // bytes of queued frames, by TrafficClass
};

}  // namespace qccl::tcp
