// Connections between ranks while they are being made, and the handshake on each.
//
//   dialler (higher rank)               acceptor (lower rank)
//   Hello                            ->
//                                    <- Hello
//   one byte: ConfirmByte            ->
//
// A connection counts for the dialler once it has the acceptor's Hello, and for the acceptor once it has the
// confirmation, so neither keeps one that the other has given up. Between ranks of a host the dialler first tries the
// unix socket, then TCP, and the confirmation on TCP says whether the unix socket is in use too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "os/fd.h"
#include "os/net/stream.h"
#include "wire/hello.h"

namespace qccl::bootstrap {

enum class LinkKind : std::uint8_t { local, tcp };  // unix socket, TCP

enum class ConfirmByte : std::uint8_t { alone = 1, beside_local = 2 };

// A connection on which the handshake is done.
struct Link {
  int rank = -1;
  LinkKind kind = LinkKind::tcp;
  os::Fd socket;
  ConfirmByte confirm = ConfirmByte::alone;
};

// The Poller's tokens: owner and index of the descriptor.
enum class SocketOwner : std::uint8_t { acceptor = 1, dialler = 2, link = 3 };
constexpr std::uint64_t socket_token(SocketOwner owner, std::uint64_t index) {
  return static_cast<std::uint64_t>(owner) << 56 | index;
}
constexpr SocketOwner owner_of(std::uint64_t token) { return static_cast<SocketOwner>(token >> 56); }
constexpr std::uint64_t index_of(std::uint64_t token) { return token & ((std::uint64_t{1} << 56) - 1); }

// Reads exactly the peer's Hello as it arrives, not a byte beyond it.
class HelloReader {
 public:
  os::IoResult read(const os::Fd& socket) {
    const os::IoResult io = os::read_some(socket.get(), Bytes(bytes_).subspan(received_));
    received_ += io.bytes;
    return io;
  }
  bool complete() const { return received_ == bytes_.size(); }
  const std::byte* bytes() const { return bytes_.data(); }

 private:
  std::array<std::byte, wire::kHelloBytes> bytes_;
  std::size_t received_ = 0;
};

// False if the socket did not take it at once. A new socket always does.
inline bool send_hello(const os::Fd& socket, const wire::Hello& hello) {
  std::array<std::byte, wire::kHelloBytes> bytes;
  wire::encode_hello(hello, bytes.data());
  return os::write_some(socket.get(), bytes).bytes == bytes.size();
}

}  // namespace qccl::bootstrap
