#include "bootstrap/mesh/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "os/net/socket.h"

namespace qccl::bootstrap {

Handshake::Handshake(const wire::Hello& own, const ConnectionPolicy& policy, const PairSecrets* secrets,
                     PeerSocket peer)
    : step_(peer.rank < 0    ? kAcceptorSteps
            : peer.index > 0 ? kFurtherDiallerSteps
                             : kDiallerSteps),
      own_(own),
      secrets_(secrets != nullptr && secrets->has_key() && peer.kind == SocketKind::tcp ? secrets : nullptr),
      peer_(std::move(peer)) {
  if (peer_.kind == SocketKind::tcp && peer_.confirm == ConfirmByte::alone && peer_.index == 0) {
    peer_.count = wanted_connections(policy, os::shortest_round_trip(peer_.socket.get()));
  }
  if (peer_.rank >= 0) own_.target = static_cast<std::uint32_t>(peer_.rank);
  own_.connection = peer_.index;
}

Result<bool> Handshake::advance() {
  for (; *step_ != Step::end; ++step_) {
    auto done = run(*step_);
    if (!done || !*done) return done;
  }
  return true;
}

PeerSocket Handshake::take() {
  if (secrets_ != nullptr && secrets_->encrypts()) {
    peer_.socket.tls()->read_ahead();
  } else {
    peer_.socket.set_tls(nullptr);
  }
  return std::move(peer_);
}

Result<bool> Handshake::authenticate() {
  if (secrets_ == nullptr) return true;
  if (peer_.socket.tls() == nullptr) {
    QCCL_ASSIGN(const bool has_begun, begin_tls());
    if (!has_begun) return false;
  }
  auto done = peer_.socket.tls()->shake_hands();
  if (!done) return Failure(done.error().kind, "it " + done.error().message);
  return done;
}

// TLS takes memory, so the acceptor begins it only for a peer that does. False: the peer has sent nothing so far.
Result<bool> Handshake::begin_tls() {
  if (peer_.rank >= 0) {
    const PairIdentity identity{own_.job, own_.rank, own_.target, peer_.index};
    QCCL_ASSIGN(auto tls, secure::Tls::client(peer_.socket.get(), secrets_->credentials(identity)));
    peer_.socket.set_tls(std::move(tls));
    return true;
  }
  std::byte first{};
  const os::IoResult io = os::peek(peer_.socket.get(), first);
  if (io.lost()) return Failure(ErrorKind::peer_lost, "it " + os::describe(io) + " during the handshake");
  if (!io.ok()) return false;
  if (first != secure::Tls::kFirstByte) return Failure(ErrorKind::misuse, "it has no key, which this job has");
  const auto find = [secrets = secrets_, own = own_](std::string_view identity) {
    return secrets->find(identity, own.job, own.rank);
  };
  QCCL_ASSIGN(auto tls, secure::Tls::server(peer_.socket.get(), find));
  peer_.socket.set_tls(std::move(tls));
  return true;
}

Result<bool> Handshake::run(Step step) {
  switch (step) {
    case Step::authenticate: return authenticate();
    case Step::send_hello: {
      own_.wanted_connections = peer_.count;
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
      if (peer_.confirm == ConfirmByte::beside_local) peer_.count = 1;
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
  if (peer_.socket.write_some(bytes).bytes == bytes.size()) return true;
  return Failure(ErrorKind::peer_lost, "connection lost during the handshake");
}

// Reads exactly `bytes` as they arrive, not a byte beyond them.
Result<bool> Handshake::receive(std::size_t bytes) {
  const auto rest = Bytes(received_).subspan(received_bytes_, bytes - received_bytes_);
  const os::IoResult io = peer_.socket.read_some(rest);
  if (io.lost()) return Failure(ErrorKind::peer_lost, "it " + os::describe(io) + " during the handshake");
  received_bytes_ += io.bytes;
  if (received_bytes_ < bytes) return false;
  received_bytes_ = 0;
  return true;
}

Status Handshake::check(const wire::Hello& hello) {
  QCCL_TRY(wire::check_hello(own_, hello));
  const bool is_higher = hello.rank > own_.rank && (hello.connection == 0 || peer_.kind == SocketKind::tcp);
  const bool fits = peer_.rank < 0 ? is_higher : hello.rank == own_.target;
  if (!fits) return Failure(ErrorKind::misuse, fmt::format("another rank ({}) is at the other end", hello.rank));
  const bool is_acceptor = peer_.rank < 0;
  const PairIdentity claimed{own_.job, hello.rank, own_.rank, hello.connection};
  if (is_acceptor && secrets_ != nullptr && peer_.socket.tls()->identity() != encode_identity(claimed)) {
    return Failure(ErrorKind::misuse, fmt::format("it calls itself rank {}, but has shown to be another", hello.rank));
  }
  peer_.rank = static_cast<int>(hello.rank);
  own_.target = hello.rank;
  peer_.index = hello.connection;
  if (peer_.index > 0) step_ = kFurtherAcceptorSteps;
  peer_.count = std::max(peer_.count, hello.wanted_connections);
  if (peer_.confirm == ConfirmByte::beside_local) peer_.count = 1;
  return {};
}

}  // namespace qccl::bootstrap
