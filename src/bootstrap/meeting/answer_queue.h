// Answers of the store that a client has not taken yet. Values are shared with the store, so that each value exists
// once, however many clients are slow.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "os/fd.h"
#include "os/net/stream.h"

namespace qccl::bootstrap {

class AnswerQueue {
 public:
  void add(std::shared_ptr<const std::string> bytes) {
    if (!bytes->empty()) pieces_.push_back(std::move(bytes));
  }
  void add(std::string bytes) { add(std::make_shared<const std::string>(std::move(bytes))); }
  bool empty() const { return pieces_.empty(); }

  // Sends as much as the socket takes now. False if the connection is lost.
  bool send(const os::Fd& socket) {
    while (!pieces_.empty()) {
      const auto rest = std::as_bytes(std::span(*pieces_.front())).subspan(sent_);
      const os::IoResult io = os::write_some(socket.get(), rest);
      if (io.lost()) return false;
      if (io.would_block) return true;
      sent_ += io.bytes;
      if (io.bytes < rest.size()) continue;
      pieces_.pop_front();
      sent_ = 0;
    }
    return true;
  }

 private:
  std::deque<std::shared_ptr<const std::string>> pieces_;
  std::size_t sent_ = 0;  // bytes of the first piece
};

}  // namespace qccl::bootstrap
