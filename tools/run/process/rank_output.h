// Passes the ranks' output from their pipes to this terminal and to files.
// Nothing here blocks before finish(), so that a stalled reader holds up the ranks' output, not the launcher.
#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "os/fd.h"

namespace qccl::tools {

enum class Stream : std::uint8_t { out, err };

// Text that waits to be written to a descriptor. Does not own the descriptor.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd) {}
  void append(std::string_view text);
  bool has_room() const;
  // The reader is gone; appended text is dropped.
  bool is_closed() const { return closed_; }
  // Blocks on the reader.
  void write_all();

  void want(std::vector<pollfd>& list) const;
  void serve(const std::vector<pollfd>& list);

 private:
  bool has_pending() const { return written_ < pending_.size(); }
  void close();
  // Writes a piece that a writable descriptor takes without blocking.
  void write_piece();

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
  std::optional<std::string> open_logs(const std::string& folder, int ranks);
  // The read ends, non-blocking.
  void add_pipes(int rank, os::Fd out, os::Fd err);

  // Writes a whole line of the launcher's own to stderr.
  void add_message(std::string_view line) { err_.append(line); }
  void want(std::vector<pollfd>& list) const;
  void serve(const std::vector<pollfd>& list);
  // Passes on the rest of the pipes and writes everything. Blocks on the reader.
  void finish();

 private:
  struct Pipe {
    int rank;
    Stream stream;
    os::Fd source;
  };
  bool pump(Pipe& pipe);
  void end(Pipe& pipe);
  void take(int rank, Stream stream, std::string_view text);
  const Sink& sink(Stream stream) const { return stream == Stream::out ? out_ : err_; }
  Sink& sink(Stream stream) { return stream == Stream::out ? out_ : err_; }
  void take_lines(int rank, Stream stream, std::string_view text);
  void take_line(int rank, Stream stream, std::string_view line);
  void log(int rank, std::string_view text);

  bool tags_;
  Sink out_{STDOUT_FILENO};
  Sink err_{STDERR_FILENO};
  std::map<std::pair<int, Stream>, std::string> partial_;  // lines without an end so far
  std::vector<Pipe> pipes_;
  std::vector<os::Fd> logs_;  // by rank
};

}  // namespace qccl::tools
