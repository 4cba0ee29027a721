#include "transport/tcp/frame_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace qccl::tcp {
namespace {

// Copies the frame's bytes from `begin` on, as far as they lie `outside`, into the frame.
void fill_from(FrameBuffer* frame, ConstBytes outside, std::size_t begin) {
  const std::size_t inside = frame->bytes - outside.size();
  const std::size_t from = std::max(begin, inside);
  if (from < frame->bytes) std::memcpy(frame->data() + from, outside.data() + (from - inside), frame->bytes - from);
}

os::IoResult write_frame(int fd, FrameBuffer* frame, ConstBytes outside) {
  if (outside.empty()) return os::write_some(fd, ConstBytes(frame->data(), frame->bytes));
  const std::array<ConstBytes, 2> pieces{ConstBytes(frame->data(), frame->bytes - outside.size()), outside};
  return os::write_some(fd, std::span<const ConstBytes>(pieces));
}

}  // namespace

os::IoResult FrameWriter::push(int fd, FrameBuffer* frame, std::uint64_t burst, ConstBytes outside) {
  const bool first = std::exchange(last_burst_, burst) != burst;
  if (!queue_.empty() || (!first && frame->bytes < kGatherBytes)) {
    fill_from(frame, outside, 0);
    enqueue(frame);
    if (!blocked_ && queued_[0] + queued_[1] >= kGatherBytes) return flush(fd);
    return {};
  }
  const auto io = write_frame(fd, frame, outside);
  if (io.bytes == frame->bytes) {
    shared_->pool.put_back(frame);
    return io;
  }
  fill_from(frame, outside, io.bytes);
  enqueue(frame);
  front_sent_ = io.bytes;
  blocked_ = true;
  return io;
}

os::IoResult FrameWriter::flush(int fd) {
  std::array<ConstBytes, os::kMaxWritePieces> pieces;
  std::size_t count = 0, total = 0;
  for (FrameBuffer* frame = queue_.front(); frame != nullptr && count < pieces.size() && total < kFlushBytes;
       frame = frame->next) {
    const std::size_t sent = count == 0 ? front_sent_ : 0;
    pieces[count++] = ConstBytes(frame->data() + sent, frame->bytes - sent);
    total += frame->bytes - sent;
  }
  if (count == 0) return {};
  const auto io = count == 1 ? os::write_some(fd, pieces[0]) : os::write_some(fd, std::span(pieces).first(count));
  consume(io.bytes);
  blocked_ = io.bytes < total;
  return io;
}

void FrameWriter::consume(std::size_t bytes) {
  while (bytes > 0) {
    const std::size_t left = queue_.front()->bytes - front_sent_;
    if (bytes < left) {
      front_sent_ += bytes;
      return;
    }
    bytes -= left;
    drop_front();
  }
}

void FrameWriter::enqueue(FrameBuffer* frame) {
  if (queue_.empty()) ++shared_->waiting_writers;
  queued_[static_cast<std::size_t>(frame->traffic)] += frame->bytes;
  queue_.push_back(frame);
}

void FrameWriter::drop_front() {
  FrameBuffer* const frame = queue_.pop_front();
  queued_[static_cast<std::size_t>(frame->traffic)] -= frame->bytes;
  front_sent_ = 0;
  shared_->pool.put_back(frame);
  if (queue_.empty()) --shared_->waiting_writers;
}

void FrameWriter::clear() {
  while (!queue_.empty()) drop_front();
  blocked_ = false;
}

}  // namespace qccl::tcp
