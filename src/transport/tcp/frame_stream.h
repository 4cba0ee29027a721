// The two halves of a connection: FrameReader cuts a stream into frames, FrameWriter sends a bounded queue of whole
// frames, in order, as many in one call as fit.
//
// Receiving small frames: one read into a staging area (shared by all connections, so that it stays in cache) takes
// many, and each is copied out. A large payload is read straight to its destination, if PayloadPlacement has one, or
// into its frame's buffer; the same call reads the beginning of what follows into the staging area.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "os/net/stream.h"
#include "transport/tcp/frame_buffer_pool.h"
#include "wire/frame.h"

namespace qccl::tcp {

class FrameReader {
 public:
  FrameReader(WorldRank peer, SharedBuffers& shared) : peer_(peer), shared_(&shared) {}

  struct ReadResult {
    std::size_t bytes = 0;  // read from the socket
    std::string loss;       // why no more frames will come; empty while they may
  };
  // Reads about `budget` bytes at most and appends the complete frames to `frames`, even when it reports a loss.
  // `placement` may be null. If memory for a frame runs out it throws std::bad_alloc; the start of the next frame is
  // then unknown, so later reads only drain the connection to its end.
  ReadResult read(int fd, std::size_t budget, PayloadPlacement* placement, FrameList& frames);

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

  os::IoResult read_once(int fd, std::size_t& offered);
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
  // `limit_bytes` bounds the waiting data. Control frames have a bound of their own, which is reached if the peer reads
  // nothing at all.
  FrameWriter(SharedBuffers& shared, std::size_t limit_bytes) : shared_(&shared), limit_bytes_(limit_bytes) {}

  // True if a frame of up to `bytes` may join the queue.
  bool has_room(std::size_t bytes, TrafficClass traffic) const {
    const std::size_t limit = traffic == TrafficClass::data ? limit_bytes_ : kControlLimitBytes;
    const std::size_t used = queued_[static_cast<std::size_t>(traffic)];
    return used == 0 || used + bytes <= limit;
  }

  // Sends `frame` at once if nothing waits before it, otherwise queues it. The first frame of a burst leaves without
  // delay; the small frames behind it are sent together, once enough have gathered or at the next flush(). Frames of
  // one `burst` number (the caller's) are one burst. `outside` are the frame's last bytes if they lie elsewhere; those
  // not sent at once are copied into the frame.
  os::IoResult push(int fd, FrameBuffer* frame, std::uint64_t burst, ConstBytes outside = {});
  // Sends from the queue, at most about kFlushBytes. bytes == 0 if nothing could be sent.
  os::IoResult flush(int fd);

  bool empty() const { return queue_.empty(); }
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
