// Ranks' output with "[rank]: " before each line. Lines of different ranks never mix: a line is
// passed on when it is whole, or when its rank closes the stream. Nothing here blocks until
// finish(), so that a reader who stalls holds up the ranks' output, not the launcher.
#pragma once

#include <poll.h>

#include <string>
#include <string_view>
#include <vector>

#include "descriptor.h"

namespace qccl::tools {

// Where lines go: the launcher's stdout or stderr.
class LineSink {
 public:
  explicit LineSink(int fd) : fd_(fd) {}
  void append(std::string_view text);
  bool has_room() const;
  bool has_pending() const { return written_ < pending_.size(); }
  // The reader is gone; what is appended is dropped.
  bool is_closed() const { return closed_; }
  int fd() const { return fd_; }
  // Writes a piece that a writable descriptor takes without blocking.
  void write_piece();
  void write_all();

 private:
  int fd_;
  std::string pending_;
  std::size_t written_ = 0;  // of pending_
  bool closed_ = false;
};

// One stream of one rank.
class TaggedStream {
 public:
  TaggedStream(int rank, Descriptor source, LineSink& sink);
  bool is_open() const { return source_.valid(); }
  bool wants_input() const { return is_open() && sink_->has_room(); }
  int fd() const { return source_.get(); }
  // Reads once and passes on whole lines. False if nothing was there to read.
  bool pump();
  // Passes on a last line that has no end.
  void close();

 private:
  void take(std::string_view text);
  void pass_on_lines();

  std::string tag_;
  Descriptor source_;
  LineSink* sink_;
  std::string partial_;
};

// All streams of a job.
class TaggedOutput {
 public:
  void add(int rank, Descriptor output, Descriptor errors);
  // A whole line of the launcher's own, to stderr.
  void add_message(std::string_view line) { err_.append(line); }
  // Adds what to wait for to a poll() list, and handles the list's answers.
  void want(std::vector<pollfd>& list) const;
  void serve(const std::vector<pollfd>& list);
  // Reads what is left in the pipes and writes everything. Blocks on the reader.
  void finish();

 private:
  LineSink out_{STDOUT_FILENO};
  LineSink err_{STDERR_FILENO};
  std::vector<TaggedStream> streams_;
};

}  // namespace qccl::tools
