// The encrypted side of a TLS connection: what OpenSSL reads from the socket and writes to it, through buffers.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "os/net/socket.h"

namespace qccl::secure {

class EncryptedSocket {
 public:
  // Bytes of a handshake; more are refused. Ranks' have some 300.
  static constexpr std::size_t kMaxHandshakeBytes = 4096;
  // The first byte of a TLS connection; QCCL's own protocols begin with others.
  static constexpr std::byte kFirstByte{0x16};

  // `fd` outlives this.
  explicit EncryptedSocket(int fd) : fd_(fd) {}

  // ---- for OpenSSL

  // The number of bytes; 0 at the end and on failure, which last_read() tells apart; -1 if there are none now.
  int read(Bytes target);
  // Keeps the bytes for send(). False without memory.
  bool write(ConstBytes source);

  // ---- for Tls

  // Sends what was written. Everything is sent if is_empty() afterwards.
  os::IoResult send();
  bool is_empty() const { return output_.empty(); }
  // Has read bytes ahead that OpenSSL has not taken.
  bool has_input() const { return input_begin_ != input_end_; }
  const os::IoResult& last_read() const { return last_read_; }
  bool speaks_tls() const { return speaks_tls_; }
  bool is_flooded() const { return handshake_bytes_ > kMaxHandshakeBytes; }
  void end_handshake() { in_handshake_ = false; }
  // From now on one read takes `bytes` from the socket, as one write may.
  void use_buffers(std::size_t bytes);

 private:
  int read_handshake(Bytes target);

  const int fd_;
  bool in_handshake_ = true;
  bool speaks_tls_ = true;
  std::size_t handshake_bytes_ = 0;
  os::IoResult last_read_;
  std::vector<std::byte> input_;  // read ahead
  std::size_t input_begin_ = 0, input_end_ = 0;
  std::vector<std::byte> output_;  // not sent from output_begin_ on
  std::size_t output_begin_ = 0;
};

}  // namespace qccl::secure
