// A rank's host and addresses, which it gives the other ranks through the store before they connect.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/launcher/launch_identity.h"
#include "os/fd.h"
#include "qccl/types.h"
#include "wire/frame.h"

namespace qccl::bootstrap {

struct AddressCard {
  std::uint32_t wire_version = wire::kWireVersion;
  TransportChoice transport = TransportChoice::automatic;
  bool encrypts = false;                 // has a key, and uses it for more than the handshakes
  std::string boot_id{};                 // and network namespace; equal: same host; empty: unknown
  std::string unix_name{};               // abstract unix socket; empty: does not listen on one
  std::uint32_t first_cpu = 0;           // the lowest core it may run on; differs between ranks that a launcher binds
  std::uint16_t port = 0;                // of all addresses; 0: does not listen
  std::vector<std::string> addresses{};  // numeric, the most likely to work first
};

// Where connections queue up until they are accepted; an invalid one is not used.
struct Listeners {
  os::Fd tcp{};
  os::Fd local{};  // a unix socket
};

// Where a rank listens, and what it tells the others of that.
struct MeshListener {
  Listeners sockets{};
  AddressCard card{};
};

std::string encode_card(const AddressCard& card);
// CorruptData if the bytes are no card.
Result<AddressCard> decode_card(std::string_view bytes);

bool same_host(const AddressCard& one, const AddressCard& other);

// Unsupported or InvalidArgument, naming the rank, if `other`'s version or transport differ from `own`.
Status check_card(const AddressCard& own, int rank, const AddressCard& other);

// The addresses at which other ranks find this one, and the address to listen on ("": every interface). On one host:
// the address towards the master, else loopback. On several: the address towards the master, then those of the other
// interfaces. With LaunchIdentity::interface_filter (see os::interface_matches): the addresses of the interfaces that
// pass, InvalidArgument if none does. Waits until `deadline` for the master's name and the route there, and then fails
// as local_address_towards() does. With a store of the program (LaunchIdentity::has_own_store) it looks once and does
// without.
struct Addresses {
  std::string listen_on;
  std::vector<std::string> published;
};
Result<Addresses> choose_addresses(const LaunchIdentity& launch, TimePoint deadline, const Clock& clock);
// Without a wait.
Result<Addresses> choose_addresses(const LaunchIdentity& launch);

}  // namespace qccl::bootstrap
