// The handshake on a connection between two ranks, as a sequence of steps for either end.
//
//   dialler (higher rank)               acceptor (lower rank)
//   Hello                            ->
//                                    <- Hello
//   one byte: ConfirmByte            ->
//
// A connection counts for the dialler once it has the acceptor's Hello, and for the acceptor once it has the
// confirmation, so neither keeps one that the other has given up. Between ranks of a host the dialler first tries the
// unix socket, then TCP, and the confirmation on TCP says whether the unix socket is in use too.
//
// The Hellos on the first TCP connection agree on the number of TCP connections: the larger one wanted, or one beside a
// unix socket. On each further connection the dialler sends its Hello and waits for nothing.
//
// If the job has a key, a TCP connection begins with TLS's handshake (pair_secrets.h), and all of the above goes
// through TLS. What follows does, too, or is plain again if the job does not encrypt.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "bootstrap/mesh/connection_count.h"
#include "bootstrap/mesh/pair_secrets.h"
#include "os/fd.h"
#include "secure/stream.h"
#include "wire/frame.h"

namespace qccl::bootstrap {

enum class SocketKind : std::uint8_t { local, tcp };  // unix socket, TCP

enum class ConfirmByte : std::uint8_t { alone = 1, beside_local = 2 };

// A connection to a rank: the handshake is done, and nothing was read beyond it.
struct PeerSocket {
  int rank = -1;
  SocketKind kind = SocketKind::tcp;
  secure::Stream socket;
  ConfirmByte confirm = ConfirmByte::alone;
  std::uint16_t index = 0;  // of this TCP connection among those of the two ranks...
  std::uint16_t count = 1;  // ...and how many they have
};

// Owns a connection until its handshake is complete.
class Handshake {
 public:
  // `own` describes this rank; its target and connection are filled in. The dialler knows the rank of its peer; the
  // acceptor's is -1. `secrets` outlive this; null: the job has no key.
  Handshake(const wire::Hello& own, const ConnectionPolicy& policy, const PairSecrets* secrets, PeerSocket peer);

  const os::Fd& socket() const { return peer_.socket.socket(); }
  // Reads and writes as much as possible now. True once the handshake is complete. PeerLost, CorruptData: no rank is at
  // the other end; Misuse, Unsupported: a rank that does not belong here, or has another key.
  Result<bool> advance();
  // After that.
  PeerSocket take();

 private:
  enum class Step : std::uint8_t { authenticate, send_hello, receive_hello, send_confirm, receive_confirm, end };
  static constexpr Step kDiallerSteps[] = {Step::authenticate, Step::send_hello, Step::receive_hello,
                                           Step::send_confirm, Step::end};
  static constexpr Step kAcceptorSteps[] = {Step::authenticate, Step::receive_hello, Step::send_hello,
                                            Step::receive_confirm, Step::end};
  static constexpr Step kFurtherDiallerSteps[] = {Step::authenticate, Step::send_hello, Step::end};
  static constexpr Step kFurtherAcceptorSteps[] = {Step::receive_hello, Step::end};

  // True if the step is done, false if it waits for the peer.
  Result<bool> run(Step step);
  Result<bool> authenticate();
  Result<bool> begin_tls();
  Result<bool> send(ConstBytes bytes);
  Result<bool> receive(std::size_t bytes);
  Status check(const wire::Hello& hello);

  const Step* step_;  // the next one
  wire::Hello own_;
  const PairSecrets* const secrets_;  // null: not on this connection
  PeerSocket peer_;
  std::array<std::byte, wire::kHelloBytes> received_;
  std::size_t received_bytes_ = 0;  // of this step
};

// The Poller's tokens: owner and index of the descriptor.
enum class SocketOwner : std::uint8_t { acceptor = 1, dialler = 2, peer = 3 };
constexpr std::uint64_t socket_token(SocketOwner owner, std::uint64_t index) {
  return static_cast<std::uint64_t>(owner) << 56 | index;
}
constexpr SocketOwner owner_of(std::uint64_t token) { return static_cast<SocketOwner>(token >> 56); }
constexpr std::uint64_t index_of(std::uint64_t token) { return token & ((std::uint64_t{1} << 56) - 1); }

}  // namespace qccl::bootstrap
