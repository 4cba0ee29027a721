// A call with another library inside the hosts (qccl/inside.h), as `qccl plan show` and `simulate` predict it.
#pragma once

#include <cstdint>

#include "tools/plan/plan_layout.h"

namespace qccl::tools {

// The profile or a flag gives the other library's rate, hosts have several ranks each, equally many, and the collective
// is one that goes that way.
bool has_inside(const PlanLayout& layout, Collective collective);
int ranks_a_host(const PlanLayout& layout);

// A rank of each host, with its part of the host's line: what goes between hosts, once for each place on a host.
PlanLayout between_hosts(const PlanLayout& layout, Collective collective);
// What the other library takes for its part of a call of `bytes`, as request_of() takes them.
double inside_seconds(const PlanLayout& layout, Collective collective, std::uint64_t bytes);

// The call, the least time of an uncompressed one, and the rate of a host's line up to which its compression pays.
void print_inside(const PlanLayout& layout, Collective collective, std::uint64_t bytes);

}  // namespace qccl::tools
