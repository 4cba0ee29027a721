// Answers who asks what this rank is doing (qccl/status.h). A thread of its own sleeps in poll() until somebody
// connects to an abstract unix socket, whose name says which rank it is:
//
//   qccl/status/USER/JOB/WORLD/RANK/PROCESS
//
// The answer is text, a line for each call and group, fields between tabs, and the end of file.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "base/result.h"
#include "os/fd.h"
#include "qccl/status.h"

namespace qccl::comm {

class StatusServer {
 public:
  // Fills in what the rank is doing; called on the server's thread.
  using Report = std::function<void(RankStatus&)>;

  // `self` says rank, world and job. A failure to listen only means that nobody can ask.
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

// The longest answer. What has no room in it is left out, the latest calls and groups first.
inline constexpr std::size_t kMaxStatusBytes = 256 * 1024;

// Where the ranks of this host are asked: the beginning of their sockets' names.
std::string status_socket_prefix();
std::string status_socket_name(const RankStatus& self);
// Nothing for another name.
std::optional<RankStatus> parse_status_socket_name(const std::string& name);

std::string encode_status(const RankStatus& status);
// Adds groups and calls, their text fit to print. CorruptData if the text is no answer.
Status decode_status(const std::string& text, RankStatus& status);

}  // namespace qccl::comm
