// TLS 1.3 with an external pre-shared key (RFC 8446, 2.2) over a connected socket, by OpenSSL. No certificates.
//
// Both ends have the same secret for the same identity, a text that says who talks to whom in which job. The client
// names the identity; the server looks its secret up, and the handshake shows each end that the other has it. Keys are
// fresh for each connection (X25519), so that a recorded one can be neither replayed nor, with the key, read later.
//
// The object reads and writes the socket itself, never blocks, and belongs to one thread at a time. During the
// handshake it reads no byte beyond a TLS record, so that the connection can go on without TLS.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "os/net/socket.h"
#include "secure/encrypted_socket.h"
#include "secure/key.h"
#include "secure/record_writer.h"

struct ssl_st;

namespace qccl::secure {

struct Credentials {
  std::string identity;
  Secret secret;
};
// The server's secret for an identity. A failure says why there is none; its message completes "it ...".
using FindSecret = std::function<Result<Secret>(std::string_view identity)>;

class Tls {
 public:
  static constexpr std::byte kFirstByte = EncryptedSocket::kFirstByte;

  // `fd` outlives the object. ResourceExhausted: no memory.
  static Result<std::unique_ptr<Tls>> client(int fd, Credentials credentials);
  static Result<std::unique_ptr<Tls>> server(int fd, FindSecret find);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // Goes on as far as possible now; true once both ends have the same secret. Misuse: the peer has another key or none;
  // PeerLost: the connection ended; CorruptData: the peer does not speak TLS. The message completes "it ...".
  Result<bool> shake_hands();
  // The client's, once the handshake is done.
  const std::string& identity() const { return identity_; }

  // From now on reads take many records at once from the socket. Call it after the handshake, to keep TLS.
  void read_ahead();

  // As os::read_some(). Bytes that fail authentication are an error that describe() explains, and end the connection.
  os::IoResult read_some(Bytes first, Bytes second = {});
  // The last read left bytes that are decrypted or can be, or the connection's end: the socket may not become ready for
  // them.
  bool has_input() const { return has_input_; }

  // As os::write_some(), with one more condition: after less than everything was taken, the next call begins with the
  // rest, in the same order.
  os::IoResult write_some(std::span<const ConstBytes> pieces);

  // This end takes new keys after so many bytes. For tests.
  void set_rekey_interval(std::uint64_t bytes) { writer_.set_rekey_interval(bytes); }

 private:
  struct FreeSsl {
    void operator()(ssl_st* ssl) const;
  };

  Tls(int fd, bool is_server);
  Status open(Credentials credentials, FindSecret find);
  Failure failed_handshake();
  os::IoResult read_record(Bytes target);

  friend struct Callbacks;  // OpenSSL's

  EncryptedSocket socket_;
  const bool is_server_;
  std::unique_ptr<ssl_st, FreeSsl> ssl_;
  Credentials credentials_;  // the client's
  FindSecret find_;          // the server's
  std::string identity_;     // the client's, at both ends
  std::string refusal_;      // why the server has no secret for it
  bool has_input_ = false;
  os::IoResult failure_;  // of a read
  RecordWriter writer_;
  std::size_t encrypted_ahead_ = 0;  // plain bytes in socket_ that write_some() has not reported as taken
};

}  // namespace qccl::secure
