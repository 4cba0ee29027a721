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
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "os/net/socket.h"
#include "secure/key.h"

struct ssl_st;
struct ssl_ctx_st;
struct bio_st;

namespace qccl::secure {

struct Credentials {
  std::string identity;
  Secret secret;
};
// The server's secret for an identity. A failure says why there is none; its message completes "it ...".
using FindSecret = std::function<Result<Secret>(std::string_view identity)>;

class Tls {
 public:
  // Handshakes of ranks read less: what a stranger sends beyond it is refused.
  static constexpr std::size_t kMaxHandshakeBytes = 4096;
  // A TLS connection's first byte; QCCL's own protocols begin with others.
  static constexpr std::byte kFirstByte{0x16};

  // `fd` outlives the object. ResourceExhausted: no memory.
  static Result<std::unique_ptr<Tls>> client(int fd, Credentials credentials);
  static Result<std::unique_ptr<Tls>> server(int fd, FindSecret find);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // Goes on as far as possible now; true once both ends have the same secret. Misuse: the peer has another key or none;
  // PeerLost: the connection ended; CorruptData: the peer does not speak TLS. The message completes "it ...".
  Result<bool> shake_hands();
  // Of the peer, once the handshake is done.
  const std::string& identity() const { return identity_; }

  // From now on reads take many records at once from the socket. Call it after the handshake, to keep TLS.
  void read_ahead();

  // As os::read_some(). Bytes that fail authentication are an error that describe() explains, and end the connection.
  os::IoResult read_some(Bytes first, Bytes second = {});
  // The last read left bytes that are decrypted or can be: the socket may not become ready for them.
  bool has_input() const { return has_input_; }

  // As os::write_some(), with one more condition: after less than everything was taken, the next call begins with the
  // rest, in the same order. `skip`: leading bytes of the pieces that count as taken.
  os::IoResult write_some(std::span<const ConstBytes> pieces);

  // The other end gets new keys after so many bytes; AES-GCM's limit is 2^24 records. For tests.
  void set_rekey_interval(std::uint64_t bytes) { rekey_interval_ = bytes; }

 private:
  struct FreeSsl {
    void operator()(ssl_st* ssl) const;
  };

  Tls(int fd, bool is_server);
  Status open(Credentials credentials, FindSecret find);
  Failure failed_handshake();
  std::size_t encrypt(std::span<const ConstBytes> pieces, std::size_t skip);
  std::size_t encrypt_record(ConstBytes plain);
  os::IoResult send_encrypted();
  os::IoResult read_record(Bytes target);

  // OpenSSL's callbacks.
  friend struct Callbacks;
  int fill(std::byte* target, std::size_t bytes);
  bool keep(ConstBytes encrypted);

  const int fd_;
  const bool is_server_;
  std::unique_ptr<ssl_st, FreeSsl> ssl_;
  Credentials credentials_;  // the client's
  FindSecret find_;          // the server's
  std::string identity_;     // the peer's
  std::string refusal_;      // why the server has no secret

  std::size_t handshake_bytes_ = 0;  // read in the handshake
  bool is_done_ = false;
  bool speaks_tls_ = true;  // the peer's first byte
  os::IoResult last_read_;

  std::vector<std::byte> input_;  // encrypted bytes read ahead
  std::size_t input_begin_ = 0, input_end_ = 0;
  bool has_input_ = false;

  std::vector<std::byte> output_;   // encrypted bytes that the socket has not taken...
  std::size_t output_begin_ = 0;    // ...from here on
  std::size_t encrypted_ahead_ = 0; // plain bytes in it, which write_some() has not reported as taken
  std::vector<std::byte> record_;  // plain bytes of several pieces
  bool is_broken_ = false;         // for want of memory
  std::uint64_t since_rekey_ = 0;
  std::uint64_t rekey_interval_;
};

}  // namespace qccl::secure
