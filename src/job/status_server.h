// Answers queries of what this rank is doing (qccl/status.h). A thread of its own sleeps in poll() until a process
// connects to an abstract unix socket, whose name tells which rank it is:
//
//   qccl/status/USER/JOB/WORLD/RANK/PROCESS
//
// The answer is text: a line for each call and group, with tabs between the fields, then the end of file.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/result.h"
#include "os/fd.h"
#include "qccl/status.h"

namespace qccl::comm {

class StatusServer {
 public:
  // Fills in what the rank is doing. Called on the server's thread.
  using Report = std::function<void(RankStatus&)>;

  // `self` has rank, world and job. If the socket cannot be opened, there are no answers.
  StatusServer(const RankStatus& self, Report report);
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

 private:
  void serve();
  void answer(const os::Fd& connection);

  Report report_;
  os::Fd listener_;
  std::atomic<bool> stopping_{false};  // written before the thread is woken
  std::thread thread_;
};

// The longest answer. It leaves out calls and groups that do not fit, the latest first.
inline constexpr std::size_t kMaxStatusBytes = 256 * 1024;

// The beginning of the names of all ranks' sockets.
inline constexpr std::string_view kStatusPrefix = "qccl/status/";
std::string status_socket_name(const RankStatus& self);
// Empty for a name of another form.
std::optional<RankStatus> parse_status_socket_name(const std::string& name);

std::string encode_status(const RankStatus& status);
// Adds groups and calls, whose text is printable. CorruptData if the text is no answer.
Status decode_status(const std::string& text, RankStatus& status);

}  // namespace qccl::comm
