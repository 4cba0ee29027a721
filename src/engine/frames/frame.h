#pragma once

#include <utility>

#include "engine/frames/frame_sender.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace qccl::engine {

// A received frame. When the object ends, the transport gets the frame back, and one that was sent eagerly leaves its
// sender's budget. Moves. A function that takes a Frame&& may move it out to keep it. One thread; the frame sender
// outlives it.
class Frame {
 public:
  Frame() = default;
  // `header` is the frame's, decoded and checked.
  Frame(FrameSender& frame_sender, const wire::FrameHeader& header, const ReceivedFrame& received)
      : frame_sender_(&frame_sender), header_(header), received_(received) {}
  Frame(Frame&& other) noexcept
      : frame_sender_(std::exchange(other.frame_sender_, nullptr)),
        header_(other.header_),
        received_(other.received_) {}
  Frame& operator=(Frame&& other) noexcept {
    if (this == &other) return *this;
    give_back();
    frame_sender_ = std::exchange(other.frame_sender_, nullptr);
    header_ = other.header_;
    received_ = other.received_;
    return *this;
  }
  ~Frame() { give_back(); }

  // False: it holds no frame, and has no peer and no payload.
  explicit operator bool() const { return frame_sender_ != nullptr; }
  const wire::FrameHeader& header() const { return header_; }
  WorldRank peer() const { return received_.peer; }
  ConstBytes payload() const { return received_.payload(); }
  bool is_placed() const { return received_.is_placed(); }
  bool is_eager() const { return (header_.phase & kEagerFlag) != 0; }

  // Something may read the frame for ever: the transport never gets it back.
  void forget() { frame_sender_ = nullptr; }

 private:
  void give_back() {
    if (frame_sender_ != nullptr) std::exchange(frame_sender_, nullptr)->consume(header_, received_);
  }

  FrameSender* frame_sender_ = nullptr;  // null: there is no frame
  wire::FrameHeader header_{};
  ReceivedFrame received_{};
};

}  // namespace qccl::engine
