// Answers queries of what this rank is doing (qccl/status.h). A thread of its own sleeps in poll() until a process
// connects to an abstract unix socket, whose name tells which rank it is:
//
//   qccl/status/USER/JOB/WORLD/RANK/PROCESS
//
// and sends a question. The answer is JSON (observe/status_text.h), then the end of file.
//
// | offset | bytes | field    | meaning                                                      |
// |--------|-------|----------|--------------------------------------------------------------|
// | 0      | 1     | subject  | StatusQuestion::Subject                                      |
// | 1      | 4     | patience | milliseconds to wait for other ranks, little-endian          |
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "os/fd.h"
#include "qccl/status.h"

namespace qccl::comm {

struct StatusQuestion {
  enum class Subject : std::uint8_t { rank = 1, job = 2 };
  static constexpr std::size_t kBytes = 5;

  Subject subject = Subject::rank;
  std::uint32_t patience_ms = 0;

  std::array<std::byte, kBytes> encode() const;
  // Empty if these bytes are no question.
  static std::optional<StatusQuestion> decode(const std::array<std::byte, kBytes>& bytes);
};

class StatusServer {
 public:
  // What it answers with. Called on the server's thread; may throw std::bad_alloc.
  class Source {
   public:
    virtual ~Source() = default;
    virtual RankStatus own() = 0;
    virtual std::vector<RankStatus> all(Nanoseconds patience) = 0;
  };

  // `self` has rank, world and job. The source outlives the server. If the socket cannot be opened, there are no
  // answers.
  StatusServer(const RankStatus& self, Source& source);
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

 private:
  void serve();
  void answer(const os::Fd& connection);

  Source& source_;
  os::Fd listener_;
  std::atomic<bool> stopping_{false};  // written before the thread is woken
  std::thread thread_;
};

// The beginning of the names of all ranks' sockets.
inline constexpr std::string_view kStatusPrefix = "qccl/status/";
std::string status_socket_name(const RankStatus& self);
// Empty for a name of another form.
std::optional<RankStatus> parse_status_socket_name(const std::string& name);

}  // namespace qccl::comm
