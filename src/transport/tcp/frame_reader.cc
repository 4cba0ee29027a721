#include "transport/tcp/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace qccl::tcp {

FrameReader::ReadResult FrameReader::read(int fd, std::size_t budget, PayloadPlacement* placement, FrameList& frames) {
  ReadResult outcome;
  while (outcome.bytes < budget) {
    std::size_t offered = 0;
    const auto io = read_once(fd, offered);
    if (io.lost()) outcome.loss = describe_end(io);
    if (!io.ok()) return outcome;
    outcome.bytes += io.bytes;
    std::size_t staged = has_lost_track_ ? 0 : io.bytes;
    if (current_ != nullptr) {
      const std::size_t direct = std::min<std::size_t>(io.bytes, current_->bytes - current_->filled);
      current_->filled += static_cast<std::uint32_t>(direct);
      staged -= direct;
    }
    try {
      if (const auto status = cut(staged, placement, frames); !status.ok()) {
        outcome.loss = "sent bytes that are no frame: " + status.error().message;
        return outcome;
      }
    } catch (const std::bad_alloc&) {
      lose_track();
      throw;
    }
    if (io.bytes < offered) return outcome;
  }
  outcome.drained = false;
  return outcome;
}

// Fills the current frame first, then the staging area behind the partial header.
os::IoResult FrameReader::read_once(int fd, std::size_t& offered) {
  const Bytes staging = expect_large_ ? staging_.first(kPeekBytes) : staging_;
  if (current_ != nullptr) {
    const Bytes rest = missing_part();
    offered = rest.size() + staging.size();
    return os::read_some(fd, rest, staging);
  }
  std::memcpy(staging.data(), header_.data(), header_bytes_);
  const Bytes target = staging.subspan(header_bytes_);
  offered = target.size();
  return os::read_some(fd, target);
}

// Cuts the front of the staging area (a partial header and `staged` new bytes) into frames.
Status FrameReader::cut(std::size_t staged, PayloadPlacement* placement, FrameList& frames) {
  if (current_ != nullptr && current_->filled == current_->bytes) frames.push_back(std::exchange(current_, nullptr));
  ConstBytes source = staging_.first(std::exchange(header_bytes_, 0) + staged);
  while (!source.empty()) {
    if (source.size() < wire::kHeaderBytes) {
      std::memcpy(header_.data(), source.data(), source.size());
      header_bytes_ = source.size();
      return {};
    }
    QCCL_TRY(begin_frame(source.data(), placement));
    source = source.subspan(fill_frame(source, frames));
  }
  return {};
}

Status FrameReader::begin_frame(const std::byte* header, PayloadPlacement* placement) {
  auto decoded = wire::decode_header(header);
  if (!decoded) return decoded.failure();
  const std::size_t bytes = wire::kHeaderBytes + decoded->payload_bytes;
  expect_large_ = decoded->payload_bytes >= kLargePayloadBytes;
  const bool asks = expect_large_ && placement != nullptr;
  std::byte* const place = asks ? placement->place(peer_, {header, wire::kHeaderBytes}) : nullptr;
  current_ = pool_->take(place != nullptr ? wire::kHeaderBytes : bytes);
  current_->bytes = static_cast<std::uint32_t>(bytes);
  current_->placed = place;
  std::memcpy(current_->data(), header, wire::kHeaderBytes);
  current_->filled = wire::kHeaderBytes;
  return {};
}

// The bytes that the current frame still lacks. Its header is complete.
Bytes FrameReader::missing_part() const {
  std::byte* const payload = current_->placed != nullptr ? current_->placed : current_->data() + wire::kHeaderBytes;
  return {payload + (current_->filled - wire::kHeaderBytes), current_->bytes - current_->filled};
}

// `source` begins with the frame's header.
std::size_t FrameReader::fill_frame(ConstBytes source, FrameList& frames) {
  const std::size_t bytes = std::min<std::size_t>(source.size(), current_->bytes);
  const ConstBytes payload = source.first(bytes).subspan(wire::kHeaderBytes);
  if (!payload.empty()) std::memcpy(missing_part().data(), payload.data(), payload.size());
  current_->filled = static_cast<std::uint32_t>(bytes);
  if (current_->filled == current_->bytes) frames.push_back(std::exchange(current_, nullptr));
  return bytes;
}

FrameBuffer* FrameReader::gathered(FrameBuffer* frame, FrameBufferPool& pool) {
  FrameBuffer* const whole = pool.take(frame->bytes);
  whole->bytes = frame->bytes;
  whole->filled = frame->filled;
  whole->peer = frame->peer;
  std::memcpy(whole->data(), frame->data(), wire::kHeaderBytes);
  std::memcpy(whole->data() + wire::kHeaderBytes, frame->placed, frame->filled - wire::kHeaderBytes);
  pool.give_back(frame);
  return whole;
}

bool FrameReader::withdraw() {
  if (current_ == nullptr || current_->placed == nullptr) return true;
  try {
    current_ = gathered(current_, *pool_);
    return true;
  } catch (const std::bad_alloc&) {
    lose_track();
    return false;
  }
}

void FrameReader::lose_track() {
  clear();
  has_lost_track_ = true;
}

std::string FrameReader::describe_end(const os::IoResult& io) const {
  std::string text = os::describe(io);
  const std::size_t got = current_ != nullptr ? current_->filled : header_bytes_;
  if (got == 0) return text;
  const std::size_t want = current_ != nullptr ? current_->bytes : wire::kHeaderBytes;
  return text + " in the middle of a frame, after " + std::to_string(got) + " of " + std::to_string(want) + " bytes";
}

void FrameReader::clear() {
  if (current_ != nullptr) pool_->give_back(std::exchange(current_, nullptr));
  header_bytes_ = 0;
}

}  // namespace qccl::tcp
