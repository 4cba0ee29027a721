// Passes the ranks' output from their pipes to this terminal and to files.
// Nothing here blocks before finish(), so that a stalled reader holds up the ranks' output, not the launcher.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "os/fd.h"

namespace qccl::tools {

enum class Stream : std::uint8_t { out, err };

inline constexpr std::size_t kReadBytes = 64 * 1024;
inline constexpr std::size_t kSinkLimit = 1024 * 1024;
// A line without end, such as a progress bar's, is passed on in pieces of this size.
inline constexpr std::size_t kLineLimit = 256 * 1024;

// Whether poll() has answered for the descriptor.
inline bool is_ready(const std::vector<pollfd>& list, int fd) {
  return std::ranges::any_of(list, [fd](const pollfd& p) { return p.fd == fd && p.revents != 0; });
}

// Text that waits to be written to a descriptor. Does not own the descriptor.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd) {}
  void append(std::string_view text) {
    if (!closed_) pending_.append(text);
  }

  bool has_room() const { return pending_.size() < kSinkLimit; }
  // The reader is gone; appended text is dropped.
  bool is_closed() const { return closed_; }

  // Blocks on the reader.
  void write_all() {
    while (has_pending()) {
      pollfd writable = {fd_, POLLOUT, 0};
      ::poll(&writable, 1, -1);
      write_piece();
    }
  }

  void want(std::vector<pollfd>& list) const {
    if (has_pending()) list.push_back({fd_, POLLOUT, 0});
  }
  void serve(const std::vector<pollfd>& list) {
    if (has_pending() && is_ready(list, fd_)) write_piece();
  }

 private:
  bool has_pending() const { return written_ < pending_.size(); }

  void close() {
    closed_ = true;
    pending_.clear();
    written_ = 0;
  }

  // Writes a piece that a writable descriptor takes without blocking.
  void write_piece() {
    // poll() promises room for PIPE_BUF bytes, no more.
    const std::size_t bytes = std::min<std::size_t>(pending_.size() - written_, PIPE_BUF);
    const ssize_t written = ::write(fd_, pending_.data() + written_, bytes);
    if (written < 0 && errno != EAGAIN && errno != EINTR) close();
    if (written <= 0) return;
    written_ += static_cast<std::size_t>(written);
    if (written_ == pending_.size() || written_ >= kReadBytes) pending_.erase(0, std::exchange(written_, 0));
  }

  int fd_;
  std::string pending_;
  std::size_t written_ = 0;  // of pending_
  bool closed_ = false;
};

// The ranks' pipes, the launcher's own stdout and stderr, and a file for each rank if requested. With tags each line
// begins with "[rank]: ". Tagged lines and lines in files are never mixed: a line is passed on when it is complete, or
// when its rank closes the stream.
class Console {
 public:
  explicit Console(bool tags) : tags_(tags) {}

  // From now on everything also goes to FOLDER/rank<r>.log. An error if the folder can't be made.
  std::optional<std::string> open_logs(const std::string& folder, int ranks) {
    std::error_code refused;
    std::filesystem::create_directories(folder, refused);
    if (refused) return fmt::format("can't make the folder '{}' for --log-dir: {}", folder, refused.message());
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string file = fmt::format("{}/rank{}.log", folder, rank);
      logs_.emplace_back(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
      if (!logs_.back().valid()) return fmt::format("can't write '{}' of --log-dir: {}", file, std::strerror(errno));
    }
    return std::nullopt;
  }

  // The read ends, non-blocking.
  void add_pipes(int rank, os::Fd out, os::Fd err) {
    pipes_.push_back({rank, Stream::out, std::move(out)});
    pipes_.push_back({rank, Stream::err, std::move(err)});
  }

  // Writes a whole line of the launcher's own to stderr.
  void add_message(std::string_view line) { err_.append(line); }

  void want(std::vector<pollfd>& list) const {
    for (const Pipe& pipe : pipes_) {
      const bool is_wanted = sink(pipe.stream).has_room() || sink(pipe.stream).is_closed();
      if (pipe.source.valid() && is_wanted) list.push_back({pipe.source.get(), POLLIN, 0});
    }
    out_.want(list);
    err_.want(list);
  }

  void serve(const std::vector<pollfd>& list) {
    for (Pipe& pipe : pipes_) {
      if (pipe.source.valid() && is_ready(list, pipe.source.get())) pump(pipe);
    }
    out_.serve(list);
    err_.serve(list);
  }

  // Passes on the rest of the pipes and writes everything. Blocks on the reader.
  void finish() {
    for (Pipe& pipe : pipes_) {
      while (pump(pipe)) {
      }
      if (pipe.source.valid()) end(pipe);
    }
    out_.write_all();
    err_.write_all();
  }

 private:
  struct Pipe {
    int rank;
    Stream stream;
    os::Fd source;
  };

  // Reads once and passes it on. False if nothing was there to read.
  bool pump(Pipe& pipe) {
    // As without pipes: a rank that writes to a closed stream gets SIGPIPE.
    if (sink(pipe.stream).is_closed()) pipe.source.reset();
    if (!pipe.source.valid()) return false;
    char text[kReadBytes];
    const ssize_t got = ::read(pipe.source.get(), text, sizeof(text));
    if (got > 0) {
      take(pipe.rank, pipe.stream, {text, static_cast<std::size_t>(got)});
      return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) end(pipe);
    return false;
  }

  void end(Pipe& pipe) {
    const auto partial = partial_.find({pipe.rank, pipe.stream});
    if (partial != partial_.end() && !partial->second.empty()) take_lines(pipe.rank, pipe.stream, "\n");
    pipe.source.reset();
  }

  void take(int rank, Stream stream, std::string_view text) {
    if (!tags_) sink(stream).append(text);
    if (tags_ || !logs_.empty()) take_lines(rank, stream, text);
  }

  const Sink& sink(Stream stream) const { return stream == Stream::out ? out_ : err_; }
  Sink& sink(Stream stream) { return stream == Stream::out ? out_ : err_; }

  void take_lines(int rank, Stream stream, std::string_view text) {
    std::string& partial = partial_[{rank, stream}];
    partial.append(text);
    std::size_t begin = 0;
    for (auto end = partial.find('\n'); end != std::string::npos; end = partial.find('\n', begin)) {
      take_line(rank, stream, std::string_view(partial).substr(begin, end + 1 - begin));
      begin = end + 1;
    }
    partial.erase(0, begin);
    if (partial.size() > kLineLimit) take_line(rank, stream, std::exchange(partial, {}) + "\n");
  }

  void take_line(int rank, Stream stream, std::string_view line) {
    log(rank, line);
    if (!tags_) return;
    sink(stream).append(fmt::format("[{}]: ", rank));
    sink(stream).append(line);
  }

  void log(int rank, std::string_view text) {
    if (static_cast<std::size_t>(rank) >= logs_.size()) return;
    const int file = logs_[static_cast<std::size_t>(rank)].get();
    while (!text.empty()) {
      const ssize_t written = ::write(file, text.data(), text.size());
      if (written <= 0) return;  // a full disk ends the log, not the job
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  bool tags_;
  Sink out_{STDOUT_FILENO};
  Sink err_{STDERR_FILENO};
  std::map<std::pair<int, Stream>, std::string> partial_;  // lines without an end so far
  std::vector<Pipe> pipes_;
  std::vector<os::Fd> logs_;  // by rank
};

}  // namespace qccl::tools
