// The plain TCP connections between two ranks over which `qccl doctor` measures a line. Each rank listens, tells all
// others how to reach it, and then one of a pair connects.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "os/net/socket.h"

namespace qccl::tools {

// The first connection carries questions and answers, the next one the measurement of one, the rest that of four.
inline constexpr std::size_t kPairSockets = 6;

// The value's own bytes.
template <class T>
Bytes bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// What a rank tells all others. Trivially copyable.
struct Card {
  std::uint64_t nonce = 0;  // 0: it does not listen
  std::uint64_t send_buffer = 0, receive_buffer = 0;
  std::uint16_t port = 0;
  std::array<std::array<char, 64>, 6> addresses{};
};

// The card of a rank that listens there. `nonce` is not 0, and of this run alone.
Result<Card> make_card(const os::Fd& listener, std::uint64_t nonce);

// All connections to the rank of the card, by the first of its addresses that answers. PeerLost: none does.
Result<std::vector<os::Fd>> connect_all(const Card& card, TimePoint deadline, const Clock& clock);

// All connections from a rank that has this card's nonce. Strangers are sent away.
Result<std::vector<os::Fd>> accept_all(const os::Fd& listener, std::uint64_t nonce, TimePoint deadline,
                                       const Clock& clock);

}  // namespace qccl::tools
