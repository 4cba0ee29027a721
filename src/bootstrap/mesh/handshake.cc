#include "bootstrap/mesh/handshake.h"

#include <fmt/format.h>

#include <utility>

#include "os/net/socket.h"

namespace qccl::bootstrap {

Handshake::Handshake(const wire::Hello& own, PeerSocket peer)
    : step_(peer.rank < 0 ? kAcceptorSteps : kDiallerSteps), own_(own), peer_(std::move(peer)) {
  if (peer_.rank >= 0) own_.target = static_cast<std::uint32_t>(peer_.rank);
}

Result<bool> Handshake::advance() {
  for (; *step_ != Step::end; ++step_) {
    auto done = run(*step_);
    if (!done || !*done) return done;
  }
  return true;
}

Result<bool> Handshake::run(Step step) {
  switch (step) {
    case Step::send_hello: {
      std::array<std::byte, wire::kHelloBytes> bytes;
      wire::encode_hello(own_, bytes.data());
      return send(bytes);
    }
    case Step::receive_hello: {
      QCCL_ASSIGN(const bool complete, receive(wire::kHelloBytes));
      if (!complete) return false;
      QCCL_ASSIGN(const auto hello, wire::decode_hello(received_.data()));
      QCCL_TRY(check(hello));
      return true;
    }
    case Step::send_confirm: {
      const auto confirm = static_cast<std::byte>(peer_.confirm);
      return send(ConstBytes(&confirm, 1));
    }
    case Step::receive_confirm: {
      QCCL_ASSIGN(const bool complete, receive(1));
      peer_.confirm = static_cast<ConfirmByte>(received_[0]);
      if (!complete || peer_.confirm == ConfirmByte::alone || peer_.confirm == ConfirmByte::beside_local)
        return complete;
      return Failure(ErrorKind::corrupt_data, "unknown confirmation");
    }
    case Step::end: break;
  }
  return true;
}

// A new socket takes everything at once.
Result<bool> Handshake::send(ConstBytes bytes) {
  if (os::write_some(peer_.socket.get(), bytes).bytes == bytes.size()) return true;
  return Failure(ErrorKind::peer_lost, "connection lost during the handshake");
}

// Reads exactly `bytes` as they arrive, not a byte beyond them.
Result<bool> Handshake::receive(std::size_t bytes) {
  const auto rest = Bytes(received_).subspan(received_bytes_, bytes - received_bytes_);
  const os::IoResult io = os::read_some(peer_.socket.get(), rest);
  if (io.lost()) return Failure(ErrorKind::peer_lost, "it " + os::describe(io) + " during the handshake");
  received_bytes_ += io.bytes;
  if (received_bytes_ < bytes) return false;
  received_bytes_ = 0;
  return true;
}

Status Handshake::check(const wire::Hello& hello) {
  QCCL_TRY(wire::check_hello(own_, hello));
  const bool fits = peer_.rank < 0 ? hello.rank > own_.rank : hello.rank == own_.target;
  if (!fits) return Failure(ErrorKind::misuse, fmt::format("another rank ({}) is at the other end", hello.rank));
  peer_.rank = static_cast<int>(hello.rank);
  own_.target = hello.rank;
  return {};
}

}  // namespace qccl::bootstrap
