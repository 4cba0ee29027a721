// The receiving half of a connection: cuts a stream into frames.
//
// Small frames: one read into a staging area (shared by all connections, so that it stays in cache) takes many, and
// each is copied out. A large payload is read straight to its destination, if PayloadPlacement has one, or into its
// frame's buffer; the same call reads the beginning of what follows into the staging area.
#pragma once

#include <array>
#include <cstddef>
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

}  // namespace qccl::tcp
