// For tests: a child process of another user.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <utility>

#include "os/net/socket.h"

namespace qccl::os {

// Only root can make one: tests without root are skipped with this reason.
inline constexpr const char* kNeedsRoot = "needs root, to act as another user";
inline bool can_act_as_another() { return own_credentials().user == 0; }

class OtherUser {
 public:
  static constexpr unsigned kUser = 65534;

  // Runs `action` in the child, where every descriptor of the parent is closed. It succeeds if the action returns true.
  explicit OtherUser(const std::function<bool()>& action) noexcept : process_(::fork()) {
    if (process_ != 0) return;
    const bool changed = ::setgid(kUser) == 0 && ::setuid(kUser) == 0;
    ::_exit(changed && action() ? 0 : 1);
  }
  ~OtherUser() {
    if (process_ > 0) succeeded();
  }
  OtherUser(const OtherUser&) = delete;
  OtherUser& operator=(const OtherUser&) = delete;

  int process() const { return process_; }

  bool has_ended() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
  }
  // Blocks until the child has ended.
  bool succeeded() {
    int status = 1;
    ::waitpid(std::exchange(process_, -1), &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t process_;
};

}  // namespace qccl::os
