#include "bootstrap/mesh/address_card.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fields.h"
#include "base/text.h"
#include "bootstrap/protocol/formats.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

// As QCCL_TRANSPORT spells it.
const char* setting(TransportChoice choice) {
  static constexpr const char* kSettings[] = {"auto", "shm", "tcp"};
  return kSettings[static_cast<std::size_t>(choice)];
}

void append_once(std::vector<std::string>& addresses, const std::string& address) {
  const bool is_known = std::ranges::find(addresses, address) != addresses.end();
  if (!is_known && addresses.size() < kMaxCardAddresses) addresses.push_back(address);
}

Result<Addresses> filtered_addresses(const std::string& filter, const std::string& source) {
  QCCL_ASSIGN(const auto interfaces, os::list_interfaces(filter));
  Addresses chosen;
  for (const auto& interface : interfaces) {
    if (!interface.link_local) append_once(chosen.published, interface.address);
  }
  if (chosen.published.size() == 1) chosen.listen_on = chosen.published.front();
  if (!chosen.published.empty()) return chosen;
  std::string names;
  if (auto all = os::list_interfaces(""); all.ok()) {
    for (const auto& interface : *all) names += (names.empty() ? "" : ", ") + interface.name + " " + interface.address;
  }
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("{} is \"{}\" but no interface that is up passes it; up are: {}", source, filter, names));
}

// Empty: nothing says where the master is.
Result<std::string> address_towards_master(const LaunchIdentity& launch, TimePoint deadline, const Clock& clock) {
  const std::string& master = launch.master_address;
  if (master.empty()) return std::string();
  if (!launch.has_own_store) return os::local_address_towards(master, deadline, clock);
  auto hint = os::local_address_towards(master);
  return hint ? *hint : std::string();
}

void visit(auto& fields, auto& card) {
  fields.integer(card.wire_version);
  fields.integer(card.transport);
  fields.template integer<std::uint8_t>(card.encrypts);
  fields.integer(card.first_cpu);
  fields.integer(card.port);
  fields.string(card.boot_id, kMaxAddressBytes);
  fields.string(card.unix_name, kMaxAddressBytes);
  fields.strings(card.addresses, kMaxCardAddresses, kMaxAddressBytes);
}

}  // namespace

std::string encode_card(const AddressCard& card) {
  FieldWriter writer;
  visit(writer, card);
  return writer.take();
}

Result<AddressCard> decode_card(std::string_view bytes) {
  FieldReader reader(bytes);
  AddressCard card;
  visit(reader, card);
  const auto is_printable = [](const std::string& text) { return printable(text) == text; };
  const bool prints = is_printable(card.unix_name) && std::ranges::all_of(card.addresses, is_printable);
  if (reader.finished() && prints && card.transport <= TransportChoice::tcp) return card;
  return Failure(ErrorKind::corrupt_data,
                 "its card in the store can't be read: it has another version of QCCL, or a stranger that reaches the "
                 "store wrote it");
}

bool same_host(const AddressCard& one, const AddressCard& other) {
  return !one.boot_id.empty() && one.boot_id == other.boot_id;
}

Status check_card(const AddressCard& own, int rank, const AddressCard& other) {
  if (other.wire_version != own.wire_version) {
    return Failure(ErrorKind::unsupported, fmt::format("rank {} speaks wire version {}, this rank {}: install the same "
                                                       "QCCL everywhere",
                                                       rank, other.wire_version, own.wire_version));
  }
  if (other.transport != own.transport) {
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("the transport is {} on rank {} but {} here: give all ranks the same (QCCL_TRANSPORT or "
                               "InitOptions::transport)",
                               setting(other.transport), rank, setting(own.transport)));
  }
  if (other.encrypts != own.encrypts) {
    return Failure(ErrorKind::invalid_argument, fmt::format("rank {} {} what it sends and this rank {}: give all ranks "
                                                            "the same QCCL_ENCRYPTION",
                                                            rank, other.encrypts ? "encrypts" : "does not encrypt",
                                                            own.encrypts ? "does" : "does not"));
  }
  if (other.transport != TransportChoice::shm && (other.addresses.empty() || other.port == 0)) {
    return Failure(ErrorKind::corrupt_data, fmt::format("rank {} gave no address", rank));
  }
  if (own.transport == TransportChoice::shm && !same_host(own, other)) {
    return Failure(ErrorKind::unsupported,
                   fmt::format("rank {} is on another host, which shared memory does not reach: set QCCL_TRANSPORT to "
                               "auto",
                               rank));
  }
  return {};
}

Result<Addresses> choose_addresses(const LaunchIdentity& launch, TimePoint deadline, const Clock& clock) {
  const std::string& filter = launch.interface_filter;
  if (!filter.empty()) return filtered_addresses(filter, launch.filter_source);
  QCCL_ASSIGN(const std::string towards_master, address_towards_master(launch, deadline, clock));
  Addresses chosen;
  if (on_one_host(launch)) {
    chosen.listen_on = towards_master.empty() ? kLoopback : towards_master;
    chosen.published = {chosen.listen_on};
    return chosen;
  }
  // A name that resolves to loopback on its own host (Debian's 127.0.1.1) is useless to other hosts.
  if (!towards_master.empty() && !is_loopback(towards_master)) chosen.published.push_back(towards_master);
  QCCL_ASSIGN(const auto interfaces, os::list_interfaces(""));
  for (const auto& interface : interfaces) {
    if (!interface.link_local && !interface.loopback) append_once(chosen.published, interface.address);
  }
  if (chosen.published.empty()) chosen.published.push_back(kLoopback);
  return chosen;
}

Result<Addresses> choose_addresses(const LaunchIdentity& launch) {
  return choose_addresses(launch, TimePoint(), SteadyClock());
}

}  // namespace qccl::bootstrap
