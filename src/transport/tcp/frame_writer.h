// The sending half of a connection: a bounded queue of whole frames, sent in order, as many in one call as fit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "os/net/stream.h"
#include "transport/tcp/frame_buffer_pool.h"

namespace qccl::tcp {

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
