// The addresses of this host that other hosts should use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qccl::os {

struct Interface {
  std::string name;     // "eth0"
  std::string address;  // numeric, IPv4 or IPv6; link-local IPv6 with its scope, "fe80::1%eth0"
  bool ipv6 = false;
  bool loopback = false;
  bool link_local = false;
};

// True if `name` passes a filter in NCCL's forms: "eth,ib" names that begin with one of these, "=eth0,eth1" exactly one
// of these, "^docker" none that begin with this, "^=docker0" none that equal this. An empty filter passes everything.
bool interface_matches(std::string_view filter, std::string_view name);

// Addresses of interfaces that are up and pass the filter: IPv4 before IPv6, otherwise in the system's order.
Result<std::vector<Interface>> list_interfaces(std::string_view filter);

// The address from which this host would send to `host` (name or numeric); sends nothing.
Result<std::string> local_address_towards(const std::string& host);

}  // namespace qccl::os
