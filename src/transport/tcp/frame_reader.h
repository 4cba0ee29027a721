// The receiving half of a connection: cuts a stream into frames.
//
// Small frames: one read into a staging area (shared by all connections, so that it stays in cache) takes many, and
// each is copied out. A large payload is read straight to its place, if PayloadPlacement gives one, or into its frame's
// buffer; the same call reads the beginning of what follows into the staging area.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "os/net/stream.h"
#include "transport/tcp/frame_buffer_pool.h"
#include "wire/frame.h"

namespace qccl::tcp {

inline constexpr std::size_t kStagingBytes = 64 * 1024;

class FrameReader {
 public:
  // `staging` (kStagingBytes) is used during read() only.
  FrameReader(WorldRank peer, FrameBufferPool& pool, Bytes staging) : peer_(peer), pool_(&pool), staging_(staging) {}

  struct ReadResult {
    std::size_t bytes = 0;  // read from the socket
    bool drained = true;    // the socket had no more just now
    std::string loss;       // why no more frames will come; empty while they may
  };
  // Reads about `budget` bytes at most and appends the complete frames to `frames`, even when it reports a loss.
  // `placement` may be null. If memory for a frame runs out it throws std::bad_alloc; the start of the next frame is
  // then unknown, so later reads only drain the connection to its end.
  ReadResult read(int fd, std::size_t budget, PayloadPlacement* placement, FrameList& frames);

  // Continues the half received frame in its own memory, if its payload was placed. False: there is no memory for it,
  // and no more frames will come, as in read().
  bool withdraw();
  // No more frames will come, as after bad_alloc in read().
  void lose_track();
  // A copy of the frame with the payload in its own memory; gives `frame` back.
  static FrameBuffer* gathered(FrameBuffer* frame, FrameBufferPool& pool);
  // Drops the half received frame.
  void clear();

 private:
  static constexpr std::size_t kLargePayloadBytes = 8 * 1024;  // copying it costs more than another read
  static constexpr std::size_t kPeekBytes = 1024;              // the next header and a small frame

  os::IoResult read_once(int fd, std::size_t& offered);
  Status cut(std::size_t staged, PayloadPlacement* placement, FrameList& frames);
  Status begin_frame(const std::byte* header, PayloadPlacement* placement);
  std::size_t fill_frame(ConstBytes source, FrameList& frames);
  Bytes missing_part() const;
  std::string describe_end(const os::IoResult& io) const;

  WorldRank peer_;
  FrameBufferPool* pool_;
  Bytes staging_;
  FrameBuffer* current_ = nullptr;                      // the frame being received: its header is complete
  std::array<std::byte, wire::kHeaderBytes> header_{};  // the part of a header received so far
  std::size_t header_bytes_ = 0;                        // 0 while there is a current frame
  bool expect_large_ = false;                           // the last frame was large
  bool has_lost_track_ = false;
};

}  // namespace qccl::tcp
