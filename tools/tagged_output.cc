#include "tagged_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace qccl::tools {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::size_t kSinkLimit = 1024 * 1024;
// A line without end, such as a progress bar's, is passed on in pieces of this size.
constexpr std::size_t kLineLimit = 256 * 1024;

bool is_ready(const std::vector<pollfd>& list, int fd) {
  return std::any_of(list.begin(), list.end(), [fd](const pollfd& p) { return p.fd == fd && p.revents != 0; });
}

}  // namespace

void LineSink::append(std::string_view text) {
  if (!closed_) pending_.append(text);
}

bool LineSink::has_room() const { return pending_.size() < kSinkLimit; }

void LineSink::write_piece() {
  // poll() promises room for PIPE_BUF bytes, no more.
  const std::size_t bytes = std::min<std::size_t>(pending_.size() - written_, PIPE_BUF);
  const ssize_t written = ::write(fd_, pending_.data() + written_, bytes);
  if (written >= 0) {
    written_ += static_cast<std::size_t>(written);
  } else if (errno != EAGAIN && errno != EINTR) {
    closed_ = true;
    written_ = pending_.size();
  }
  if (written_ == pending_.size() || written_ >= kReadBytes) pending_.erase(0, std::exchange(written_, 0));
}

void LineSink::write_all() {
  while (has_pending()) {
    pollfd writable = {fd_, POLLOUT, 0};
    ::poll(&writable, 1, -1);
    write_piece();
  }
}

TaggedStream::TaggedStream(int rank, Descriptor source, LineSink& sink)
    : tag_(fmt::format("[{}]: ", rank)), source_(std::move(source)), sink_(&sink) {}

bool TaggedStream::pump() {
  // As without tags: who writes to a reader that is gone learns it by SIGPIPE.
  if (sink_->is_closed()) source_.reset();
  if (!is_open()) return false;
  char text[kReadBytes];
  const ssize_t got = ::read(source_.get(), text, sizeof(text));
  if (got > 0) {
    take({text, static_cast<std::size_t>(got)});
    return true;
  }
  if (got == 0 || (errno != EAGAIN && errno != EINTR)) close();
  return false;
}

void TaggedStream::take(std::string_view text) {
  partial_.append(text);
  pass_on_lines();
  if (partial_.size() > kLineLimit) {
    partial_.push_back('\n');
    pass_on_lines();
  }
}

void TaggedStream::pass_on_lines() {
  std::size_t begin = 0;
  for (auto end = partial_.find('\n'); end != std::string::npos; end = partial_.find('\n', begin)) {
    sink_->append(tag_);
    sink_->append(std::string_view(partial_).substr(begin, end + 1 - begin));
    begin = end + 1;
  }
  partial_.erase(0, begin);
}

void TaggedStream::close() {
  if (!partial_.empty()) take("\n");
  source_.reset();
}

void TaggedOutput::add(int rank, Descriptor output, Descriptor errors) {
  streams_.emplace_back(rank, std::move(output), out_);
  streams_.emplace_back(rank, std::move(errors), err_);
}

void TaggedOutput::want(std::vector<pollfd>& list) const {
  for (const TaggedStream& stream : streams_) {
    if (stream.wants_input()) list.push_back({stream.fd(), POLLIN, 0});
  }
  for (const LineSink* sink : {&out_, &err_}) {
    if (sink->has_pending()) list.push_back({sink->fd(), POLLOUT, 0});
  }
}

void TaggedOutput::serve(const std::vector<pollfd>& list) {
  for (TaggedStream& stream : streams_) {
    if (stream.is_open() && is_ready(list, stream.fd())) stream.pump();
  }
  for (LineSink* sink : {&out_, &err_}) {
    if (sink->has_pending() && is_ready(list, sink->fd())) sink->write_piece();
  }
}

void TaggedOutput::finish() {
  for (TaggedStream& stream : streams_) {
    while (stream.pump()) {
    }
    stream.close();
  }
  out_.write_all();
  err_.write_all();
}

}  // namespace qccl::tools
