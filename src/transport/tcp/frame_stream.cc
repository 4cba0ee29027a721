#include "transport/tcp/frame_stream.h"

#include <algorithm>
#include <cstring>

namespace qccl::tcp {
namespace {

// Copies the frame's bytes from `begin` on, as far as they lie `outside`, into the frame.
void fill_from(FrameBuffer* frame, ConstBytes outside, std::size_t begin) {
  const std::size_t inside = frame->bytes - outside.size();
  const std::size_t from = std::max(begin, inside);
  if (from < frame->bytes) std::memcpy(frame->data() + from, outside.data() + (from - inside), frame->bytes - from);
}

os::IoResult write_frame(secure::Stream& stream, FrameBuffer* frame, ConstBytes outside) {
  if (outside.empty()) return stream.write_some(ConstBytes(frame->data(), frame->bytes));
  const std::array<ConstBytes, 2> pieces{ConstBytes(frame->data(), frame->bytes - outside.size()), outside};
  return stream.write_some(std::span<const ConstBytes>(pieces));
}

}  // namespace

FrameReader::ReadResult FrameReader::read(secure::Stream& stream, std::size_t budget, PayloadPlacement* placement,
                                          FrameList& frames) {
  ReadResult result;
  while (result.bytes < budget) {
    std::size_t offered = 0;
    const auto io = read_once(stream, offered);
    if (io.lost()) {
      result.loss = describe_end(io);
      result.end = io.ended_by_peer() ? Transport::End::by_peer : Transport::End::broken;
    }
    if (!io.ok()) return result;
    result.bytes += io.bytes;
    std::size_t staged = stopped_ ? 0 : io.bytes;
    if (current_ != nullptr) {
      const std::size_t direct = std::min<std::size_t>(io.bytes, current_->bytes - current_->filled);
      current_->filled += static_cast<std::uint32_t>(direct);
      staged -= direct;
    }
    try {
      if (const auto status = parse(staged, placement, frames); !status.ok()) {
        result.loss = "sent bytes that are no frame: " + status.error().message;
        result.end = Transport::End::faulty;
        return result;
      }
    } catch (const std::bad_alloc&) {
      stop();
      throw;
    }
    if (io.bytes < offered) break;
  }
  return result;
}

// Fills the current frame first, then the staging area behind the partial header.
os::IoResult FrameReader::read_once(secure::Stream& stream, std::size_t& offered) {
  const Bytes staging = Bytes(shared_->staging).first(expect_large_ ? kPeekBytes : kStagingBytes);
  if (current_ != nullptr) {
    const Bytes rest = missing_part();
    offered = rest.size() + staging.size();
    return stream.read_some(rest, staging);
  }
  std::memcpy(staging.data(), header_.data(), header_bytes_);
  const Bytes target = staging.subspan(header_bytes_);
  offered = target.size();
  return stream.read_some(target);
}

// Parses the front of the staging area (a partial header and `staged` new bytes) into frames.
Status FrameReader::parse(std::size_t staged, PayloadPlacement* placement, FrameList& frames) {
  if (current_ != nullptr && current_->filled == current_->bytes) frames.push_back(std::exchange(current_, nullptr));
  ConstBytes source = ConstBytes(shared_->staging).first(std::exchange(header_bytes_, 0) + staged);
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
  QCCL_ASSIGN(const auto decoded, wire::decode_header(header));
  const std::size_t bytes = wire::kHeaderBytes + decoded.payload_bytes;
  expect_large_ = decoded.payload_bytes >= kLargePayloadBytes;
  const bool asks = expect_large_ && placement != nullptr;
  std::byte* const target = asks ? placement->find_destination(peer_, {header, wire::kHeaderBytes}) : nullptr;
  current_ = shared_->pool.take(target != nullptr ? wire::kHeaderBytes : bytes);
  current_->bytes = static_cast<std::uint32_t>(bytes);
  current_->placed = target;
  current_->number = decoded.number;
  current_->is_last = decoded.kind == wire::FrameKind::last;
  std::memcpy(current_->data(), header, wire::kHeaderBytes);
  current_->filled = wire::kHeaderBytes;
  return {};
}

// The bytes that the current frame, whose header is complete, still lacks.
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

FrameBuffer* with_own_payload(FrameBuffer* frame, FrameBufferPool& pool) {
  FrameBuffer* const whole = pool.take(frame->bytes);
  whole->connection = frame->connection;
  whole->bytes = frame->bytes;
  whole->filled = frame->filled;
  whole->number = frame->number;
  whole->is_last = frame->is_last;
  std::memcpy(whole->data(), frame->data(), wire::kHeaderBytes);
  std::memcpy(whole->data() + wire::kHeaderBytes, frame->placed, frame->filled - wire::kHeaderBytes);
  pool.put_back(frame);
  return whole;
}

bool FrameReader::withdraw() {
  if (current_ == nullptr || current_->placed == nullptr) return true;
  try {
    current_ = with_own_payload(current_, shared_->pool);
    return true;
  } catch (const std::bad_alloc&) {
    stop();
    return false;
  }
}

void FrameReader::stop() {
  clear();
  stopped_ = true;
}

std::string FrameReader::describe_end(const os::IoResult& io) const {
  std::string text = os::describe(io);
  const std::size_t got = current_ != nullptr ? current_->filled : header_bytes_;
  if (got == 0) return text;
  const std::size_t want = current_ != nullptr ? current_->bytes : wire::kHeaderBytes;
  return text + " in the middle of a frame, after " + std::to_string(got) + " of " + std::to_string(want) + " bytes";
}

void FrameReader::clear() {
  if (current_ != nullptr) shared_->pool.put_back(std::exchange(current_, nullptr));
  header_bytes_ = 0;
}

os::IoResult FrameWriter::push(secure::Stream& stream, FrameBuffer* frame, std::uint64_t burst, ConstBytes outside) {
  const bool first = std::exchange(last_burst_, burst) != burst;
  if (!queue_.empty() || (!first && frame->bytes < kGatherBytes)) {
    fill_from(frame, outside, 0);
    enqueue(frame);
    if (!blocked_ && queued_bytes() >= kGatherBytes) return flush(stream);
    return {};
  }
  const auto io = write_frame(stream, frame, outside);
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

os::IoResult FrameWriter::flush(secure::Stream& stream) {
  std::array<ConstBytes, os::kMaxWritePieces> pieces;
  std::size_t count = 0, total = 0;
  for (FrameBuffer* frame = queue_.front(); frame != nullptr && count < pieces.size() && total < kFlushBytes;
       frame = frame->next) {
    const std::size_t sent = count == 0 ? front_sent_ : 0;
    pieces[count++] = ConstBytes(frame->data() + sent, frame->bytes - sent);
    total += frame->bytes - sent;
  }
  if (count == 0) return {};
  const auto io = count == 1 ? stream.write_some(pieces[0]) : stream.write_some(std::span(pieces).first(count));
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
