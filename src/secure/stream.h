// A connected socket over which bytes go as they are, or through TLS.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "os/fd.h"
#include "os/net/socket.h"
#include "secure/tls.h"

namespace qccl::secure {

class Stream {
 public:
  Stream() = default;
  Stream(os::Fd socket) : socket_(std::move(socket)) {}
  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&& other) noexcept {
    tls_ = std::move(other.tls_);  // first: it refers to the socket
    socket_ = std::move(other.socket_);
    return *this;
  }

  const os::Fd& socket() const { return socket_; }
  int get() const { return socket_.get(); }
  bool valid() const { return socket_.valid(); }
  bool inherited() const { return socket_.inherited(); }
  void reset() {
    tls_.reset();
    socket_.reset();
  }
  os::Fd take_socket() {
    tls_.reset();
    return std::move(socket_);
  }

  // Begins, or with null ends, TLS.
  void set_tls(std::unique_ptr<Tls> tls) { tls_ = std::move(tls); }
  Tls* tls() const { return tls_.get(); }
  bool is_encrypted() const { return tls_ != nullptr; }

  // As os::read_some() and os::write_some(); through TLS as Tls's.
  os::IoResult read_some(Bytes target) {
    return tls_ == nullptr ? os::read_some(socket_.get(), target) : tls_->read_some(target);
  }
  os::IoResult read_some(Bytes first, Bytes second) {
    return tls_ == nullptr ? os::read_some(socket_.get(), first, second) : tls_->read_some(first, second);
  }
  os::IoResult write_some(ConstBytes source) {
    return tls_ == nullptr ? os::write_some(socket_.get(), source) : tls_->write_some({&source, 1});
  }
  os::IoResult write_some(std::span<const ConstBytes> pieces) {
    return tls_ == nullptr ? os::write_some(socket_.get(), pieces) : tls_->write_some(pieces);
  }
  // Bytes may be there to read although the socket is not ready.
  bool has_input() const { return tls_ != nullptr && tls_->has_input(); }

  // ---- blocking, as the functions of os

  Result<bool> wait_readable(TimePoint deadline, const Clock& clock) {
    if (has_input()) return true;
    return os::wait_ready(socket_, os::Direction::read, deadline, clock);
  }
  Status read_exactly(Bytes target, TimePoint deadline, const Clock& clock) {
    return os::move_exactly({socket_, os::Direction::read, deadline, clock}, target.size(),
                            [&](std::size_t done) { return read_some(target.subspan(done)); });
  }
  Status write_exactly(ConstBytes source, TimePoint deadline, const Clock& clock) {
    return os::move_exactly({socket_, os::Direction::write, deadline, clock}, source.size(),
                            [&](std::size_t done) { return write_some(source.subspan(done)); });
  }
  // Blocks until the handshake of the TLS connection is done: see Tls::shake_hands().
  Status shake_hands(TimePoint deadline, const Clock& clock) {
    for (;;) {
      QCCL_ASSIGN(const bool is_done, tls_->shake_hands());
      if (is_done) return {};
      QCCL_ASSIGN(const bool is_ready, os::wait_ready(socket_, os::Direction::read, deadline, clock));
      if (!is_ready) return Failure(ErrorKind::deadline_exceeded, "did not end its TLS handshake in time");
    }
  }

 private:
  os::Fd socket_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace qccl::secure
