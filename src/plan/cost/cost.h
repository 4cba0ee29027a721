// The cost of a plan on a layout of hosts: pure functions of the plan and of the speeds of links and processors.
//
//   time = start + first + max(wire, processor) + min(wire, processor) / 5
//     start      one latency, if a stream is too large to be sent before its receiver has granted it
//     first      the latencies on the critical path of a single slice through the plan, including the time that the
//                processors at both ends of each link spend on a frame; everything after it is pipelined behind it
//     wire       the busiest host's bytes out or in, with headers, at its link's rate, and at least the time of the
//                critical path's own slices one after another; if a rank's streams of several slices come from several
//                hosts and go to several at once, they contend: plus one slice for each of them but one
//     processor  the time of the busiest rank's thread to put frames into links and take them out, beyond those on the
//                critical path, and to encode, decode, add and copy; or of all ranks together on the cores they share
//     / 5        the part of the shorter one that the longer one does not hide: its first and last slices, and turns
//                that ranks wait for; a guess that bench/predicted/compare supports
#pragma once

#include <cstdint>
#include <vector>

#include "plan/cost/profile.h"
#include "plan/plan.h"

namespace qccl::plan {

// Rates are bytes per second; 0 is infinitely fast.
struct MachineModel {
  double wire_rate = 1.25e9;   // of a host's link, out and in
  double wire_efficiency = 1;  // share of it left by packet headers
  double burst_bytes = 0;      // that an idle host sends at once
  LinkCost wire = {50e-6, 0, 0};
  LinkCost local = {2e-6, 0, 5e9};
  double copy_rate = 0;
  double add_rate = 0;     // two operands, in bytes of one
  double encode_rate = 0;  // of the call's codec, in bytes of its input
  double decode_rate = 0;
  double cores = 0;           // of a machine, shared by its ranks; 0: each rank has its own
  int hosts_per_machine = 1;  // virtual hosts share its cores
};

// TCP with timestamps carries 1448 bytes in an Ethernet frame of 1514.
inline constexpr double kTcpEfficiency = 1448.0 / 1514.0;

// LinkCost::contention of TCP if ranks outnumber cores: data in several peers' sockets leaves the cache before its
// rank's turn comes. Measured with 3, 4 and 8 ranks on 2 cores, 1 to 16 MiB.
inline constexpr double kContention = 0.15;

// The profile's speeds, with those of the codec of this specification.
MachineModel links_of(const Profile& profile, std::string_view codec);

// The computation of a step beside moving bytes (engine/compute/slice_encoder.h): how often it passes over its slice.
struct StepWork {
  int encodes = 0;
  int decodes = 0;
  int adds = 0;
  int copies = 0;
  friend bool operator==(const StepWork&, const StepWork&) = default;
};

// The work of the lane's step of that index. Bytes that links send and receive are not counted.
StepWork work_of(const Lane& lane, std::size_t step, bool compressed);

// The time of a step's work on `bytes` of input.
double seconds_of(const StepWork& work, double bytes, const MachineModel& links);

// The size of elements on the wire.
struct Encoding {
  double element_bytes = 4;
  double encoded_bytes = 4;  // of one element on the wire; element_bytes uncompressed
  double frame_bytes = 64;   // of a header
  double eager_bytes = 64 * 1024;
};

struct CostEstimate {
  double seconds = 0;
  double start = 0;
  double first = 0;
  double wire = 0;
  double processor = 0;
  double busiest_host_bytes = 0;  // out of it or into it, over the wire
  double most_sent_bytes = 0;     // by one rank to ranks of other hosts
  double mean_sent_bytes = 0;     // the same, mean over all ranks
};

inline constexpr int kAllRanks = 0;

// `hosts`: the host of each rank; empty: each rank on its own. `request` gives the slice length. Examines the schedules
// of about `most_ranks` ranks, spread over the hosts, and assumes that the others are like them; the resulting bytes
// are then estimates.
CostEstimate price(const Request& request, const std::vector<int>& hosts, const MachineModel& links,
                   const Encoding& encoding, int most_ranks = kAllRanks);

}  // namespace qccl::plan
