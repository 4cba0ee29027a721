// TLS handshakes: whatever a stranger sends to either end, alone or mixed into a rank's own first message, the
// handshake ends with a refusal or waits for more. It never succeeds.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "os/net/socket.h"
#include "secure/tls.h"

namespace {

using namespace qccl;

secure::Secret secret() {
  std::string text = "sixteen bytes, or more";
  return secure::Key::from_text(text, "").take_or_throw().derive("");
}

std::unique_ptr<secure::Tls> end_at(const os::Fd& socket, bool is_server) {
  const auto find = [](std::string_view identity) -> Result<secure::Secret> {
    if (identity == "rank") return secret();
    return Failure(ErrorKind::misuse, "is unknown");
  };
  auto made =
      is_server ? secure::Tls::server(socket.get(), find) : secure::Tls::client(socket.get(), {"rank", secret()});
  return made.take_or_throw();
}

std::vector<std::byte> first_message_of_a_rank() {
  auto sockets = os::socket_pair().take_or_throw();
  const auto client = end_at(sockets.first, false);
  fuzz::require(!client->shake_hands().take_or_throw(), "a client waits for the server");
  std::vector<std::byte> message(4096);
  message.resize(os::read_some(sockets.second.get(), message).bytes);
  return message;
}

// A rank's first message with the input's bytes added to its own.
std::vector<std::byte> mixed(fuzz::Input input) {
  static const std::vector<std::byte> first_message = first_message_of_a_rank();
  std::vector<std::byte> message = first_message;
  const std::size_t begin = input.number() % message.size();
  const auto rest = input.rest();
  for (std::size_t i = 0; i < rest.size() && begin + i < message.size(); ++i) {
    message[begin + i] ^= static_cast<std::byte>(rest[i]);
  }
  return message;
}

}  // namespace

// Input: a byte that chooses the end, and whether the rest is sent as it is or mixed into a message.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint8_t choice = input.byte();
  const bool is_server = choice % 2 == 0;
  std::vector<std::byte> message;
  if (choice % 4 < 2) {
    message = mixed(input);
  } else {
    const auto bytes = std::as_bytes(input.rest());
    message.assign(bytes.begin(), bytes.end());
    if (choice % 8 < 4 && !message.empty()) message[0] = secure::Tls::kFirstByte;
  }
  auto sockets = os::socket_pair().take_or_throw();
  const auto end = end_at(sockets.first, is_server);
  if (!message.empty()) static_cast<void>(os::write_some(sockets.second.get(), message));
  for (int turn = 0; turn < 3; ++turn) {
    const Result<bool> done = end->shake_hands();
    fuzz::require(!done || !done.value(), "no stranger gets through a handshake");
    if (!done) break;
  }
  return 0;
}
