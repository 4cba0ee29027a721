// What a plan costs on a layout of hosts: pure functions of the plan and of what links and
// processors do.
//
//   time = start + first + max(wire, processor) + min(wire, processor) / 5
//     start      one latency, if anything is too large to be sent before its receiver granted it
//     first      the latencies on the longest way of a single slice through the plan, with what
//                processors at both ends of each link do for a frame; what follows is pipelined
//                behind it
//     wire       the busiest host's bytes out or in, with headers, at its link's rate; at least what
//                the longest way's own slices take one after the other; and where a rank's streams of
//                several slices come from several hosts and go to several at once, a slice of each
//                but one, for they get into each other's way
//     processor  what the busiest rank's takes to put frames into links and take them out, beyond
//                those on that way, and to encode, decode, add and copy, all of it by one thread; or
//                all ranks' together on the cores that they share
//     / 5        what of the shorter one is not hidden behind the other: its first and last slices,
//                and turns that ranks wait for; a guess that bench/predicted bears out
#pragma once

#include <cstdint>
#include <vector>

#include "plan/cost/profile.h"
#include "plan/cost/step_work.h"
#include "plan/plan.h"

namespace qccl::plan {

// Rates are bytes a second; 0 is infinitely fast.
struct Links {
  double wire_rate = 1.25e9;   // of a host's link, out and in
  double wire_efficiency = 1;  // what packets' headers leave of it
  double burst_bytes = 0;      // that leave a host at once when its link has been idle
  Link wire = {50e-6, 0, 0};
  Link local = {2e-6, 0, 5e9};
  double copy_rate = 0;
  double add_rate = 0;     // two operands, by the bytes of one
  double encode_rate = 0;  // of the call's codec, by its input
  double decode_rate = 0;
  double cores = 0;           // of a machine, which its ranks share; 0: each has its own
  int hosts_per_machine = 1;  // virtual ones share its cores
};

// Of Ethernet frames of 1514 bytes TCP with timestamps carries 1448.
inline constexpr double kTcpEfficiency = 1448.0 / 1514.0;

// Link::contention of TCP where ranks outnumber cores: what lies in several peers' sockets leaves the cache before its
// rank's turn comes. Measured with 3, 4 and 8 ranks on 2 cores, 1 to 16 MiB.
inline constexpr double kContention = 0.15;

// What the profile says, for a codec by its specification.
Links links_of(const Profile& profile, std::string_view codec);

// A step's work on so many bytes of input.
double seconds_of(const StepWork& work, double bytes, const Links& links);

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
  double processor = 0;
  double busiest_host_bytes = 0;  // out of it or into it, over the wire
  double most_sent_bytes = 0;     // by one rank to ranks of other hosts
  double mean_sent_bytes = 0;     // the same over all ranks
};

inline constexpr int kAllRanks = 0;

// `hosts` of each rank, empty: each on its own. `request` gives the slice length. Looks at so many
// ranks' schedules, spread over the hosts, and takes the others to be like them; the bytes that it then
// says are estimates.
Price price(const Request& request, const std::vector<int>& hosts, const Links& links, const Encoding& encoding,
            int most_roles = kAllRanks);

}  // namespace qccl::plan
