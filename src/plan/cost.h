// What a plan costs on a layout of hosts: pure functions of the roles and of what links and
// processors do.
//
//   time = start + first + max(wire, local, compute)
//     start    one latency, if anything is too large to be sent before its receiver granted it
//     first    the latencies on the longest way of a single slice through the plan, frames at a
//              `frame_seconds` each; what follows is pipelined behind it
//     wire     the busiest host's bytes out or in, with headers, at the link's rate; at least what
//              the longest way's own slices take one after the other
//     local    the busiest rank's bytes to and from ranks of its host
//     compute  the busiest rank's encoding, decoding and adding
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace qccl::plan {

// Rates are bytes a second, of one direction.
struct Links {
  double wire_rate = 1.25e9;   // of a host
  double wire_efficiency = 1;  // what TCP and its packets leave of it
  double wire_latency = 50e-6;
  double local_rate = 5e9;  // of a rank
  double local_latency = 2e-6;
  double frame_seconds = 0;   // of a rank's time for a frame
  double compute_rate = 8e9;  // of adding, by input
  double encode_rate = 2e9;   // of a codec, by input
};

// How elements travel.
struct Encoding {
  double element_bytes = 4;
  double encoded_bytes = 4;  // of one element on the wire; element_bytes uncompressed
  double frame_bytes = 64;   // of a header
  double eager_bytes = 64 * 1024;
};

struct Price {
  double seconds = 0;
  double start = 0;
  double first = 0;
  double wire = 0;
  double local = 0;
  double compute = 0;
  double busiest_host_bytes = 0;  // out of it or into it, over the wire
  double most_sent_bytes = 0;     // by one rank to ranks of other hosts
  double mean_sent_bytes = 0;     // the same over all ranks
};

// `roles` by rank; `hosts` of each rank, empty: each on its own. `request` gives the slice length.
Price price(const Request& request, const std::vector<Role>& roles, const std::vector<int>& hosts, const Links& links,
            const Encoding& encoding);

}  // namespace qccl::plan
