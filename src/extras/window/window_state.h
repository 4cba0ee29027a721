// What a Window handle points to: a group of its own, the service that receives for this rank, and what the members
// have opened it with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "extras/window/window_service.h"
#include "group/communicator_state.h"
#include "qccl/window.h"

namespace qccl::internal {

// Thread-safe. Throws Error.
class WindowState {
 public:
  struct Member {
    std::uint64_t bytes = 0;
    std::uint64_t label = 0;
  };

  // Collective over the group.
  WindowState(CommunicatorState& parent, std::span<std::byte> memory, std::uint64_t label);
  ~WindowState();
  WindowState(const WindowState&) = delete;
  WindowState& operator=(const WindowState&) = delete;

  const Communicator& group() const { return group_; }
  // `call` names the call in the error.
  const Member& member(int rank, const char* call) const;

  Work put(const Window::Put& put, Window::Timeout timeout);
  Work signal(int to, Window::Timeout timeout);
  Work wait_signal(int from, Window::Timeout timeout);
  void abort(const std::string& reason);
  void close();

 private:
  // A message to a member: a header, and a put's bytes.
  struct Letter {
    comm::WindowHeader header{};
    const void* data = nullptr;
    std::size_t bytes = 0;
    int to = 0;
    const char* name = "";
  };

  Work post(const Letter& letter, Window::Timeout timeout);
  void check_open(const char* call) const;
  void say_goodbye();
  void finish();
  [[noreturn]] void refuse(ErrorKind kind, const char* call, const std::string& what) const;

  std::shared_ptr<comm::Context> context_;  // null once closed
  const int world_rank_;
  Communicator group_;
  std::vector<Member> members_;
  std::unique_ptr<comm::WindowService> service_;

  std::mutex posting_;      // held while a letter's messages are posted
  bool is_closed_ = false;  // guarded by posting_
  std::mutex closing_;      // held by close()
};

}  // namespace qccl::internal
