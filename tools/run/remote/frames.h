// What a launcher and the agent that it starts on another host say to each other, over the agent's standard input and
// output. The agent begins with a line, kGreeting and the version; whatever a login shell printed before is skipped.
// Then both send frames:
//
// | bytes | meaning                                        |
// |-------|------------------------------------------------|
// | 0     | kind                                           |
// | 1-4   | number, little endian                          |
// | 5-8   | size of the text, at most kMaxText             |
// | 9-    | text                                           |
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qccl::tools {

enum class FrameKind : std::uint8_t {
  // Launcher to agent.
  job = 1,  // text: a JobPart; the agent answers `port`
  signal,   // number: for all ranks
  kill,     // everything, at once
  input,    // text: for rank 0's standard input; none: its end
  // Agent to launcher.
  port,     // number: MASTER_PORT; all ranks of the host have been started
  refused,  // number: exit code, text: why the ranks could not be started
  output,   // number: rank, text: what it wrote; none: the end
  errors,   // the same of its standard error
  ended,    // number: rank, text: process and status as waitpid() gives it
  message,  // text: for people
  done,     // no process of the job is left on the host
  // Both.
  taken,    // number: bytes of input or output that have been passed on: leave to send as many more
  hang_up,  // number: a Stream; nobody reads it any more
  alive,    // the launcher asks, the agent answers the same
};

struct Frame {
  FrameKind kind = FrameKind::alive;
  std::uint32_t number = 0;
  std::string text;
};

inline constexpr std::string_view kGreeting = "qccl run agent ";
inline constexpr std::size_t kMaxText = 16 * 1024 * 1024;
// Of input or output, on its way in one direction and not yet taken.
inline constexpr std::size_t kWindow = 256 * 1024;

std::string encode_frame(FrameKind kind, std::uint32_t number = 0, std::string_view text = {});

// Takes bytes as they come and gives whole frames.
class FrameReader {
 public:
  void append(std::string_view bytes);
  // The rest of the greeting's line, once that is there.
  std::optional<std::string> greeting();
  std::optional<Frame> next();
  // True if what came can't be a frame.
  bool is_broken() const { return broken_; }

 private:
  std::string bytes_;
  std::size_t read_ = 0;  // of bytes_
  bool broken_ = false;
};

}  // namespace qccl::tools
