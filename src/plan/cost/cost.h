// The cost of a plan on a layout of hosts: pure functions of the plan and of the speeds of links and processors.
//
//   time = start + first + max(wire, processor) + min(wire, processor) / 5
//     start      one latency, if a stream is too large to be sent before its receiver has granted it; none between
//                distant ranks, where the first slices are sent before
//     first      the latencies on the critical path of a single slice through the plan, each that of its pair of ranks:
//                of one host, of one site, or of two; including the time that the processors at both ends of each link
//                spend on a frame; everything after it is pipelined behind it
//     wire       the busiest host's bytes out or in, with headers, at its link's rate, and the busiest site's at its
//                own; at least a round trip for each window between distant ranks, and the time of the critical
//                path's own slices one after another, and that of lanes that wait for each other; if a rank's
//                streams of several slices come from several hosts and go to several at once, they contend: plus
//                one slice for each of them but one; streams of one slice that are added cost one slice together
//     processor  the time of the busiest rank's thread to put frames into links and take them out, beyond those on the
//                critical path, and to encode, decode, add and copy; or of all ranks together on the cores they share
//     / 5        the part of the shorter one that the longer one does not hide: its first and last slices, and turns
//                that ranks wait for; a guess that bench/predicted/compare supports
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/distance.h"
#include "base/result.h"
#include "plan/plan.h"
#include "qccl/types.h"

namespace qccl::plan {

// ---- the speeds of links and processors (`qccl doctor --measure` measures them, QCCL_PROFILE names a file with them)

// A link between two ranks. Rates are bytes per second; 0 is infinitely fast.
struct LinkCost {
  double latency = 0;        // seconds from a rank's call until it sees the peer's frame, of few bytes
  double frame_seconds = 0;  // the part of that in a rank's processor for one frame, at either end
  double rank_rate = 0;      // of a rank's processor that writes bytes to the link or reads them
  double contention = 0;     // relative extra time of long streams for each peer beyond the first
};

// Speed of a codec whose specification begins with `codec`, in bytes of float32.
struct CodecSpeed {
  std::string codec;
  double encode_rate = 0;
  double decode_rate = 0;  // decoding and adding
  bool is_typical = true;  // false: it says nothing of codecs without an entry, as an entropy code's
};

struct Profile {
  std::string machine;   // where it was measured
  LinkCost shm;          // inside a host
  LinkCost loopback;     // inside a host over TCP
  LinkCost wire;         // between hosts
  LinkCost inside;       // of another library inside a host (qccl/inside.h), each way; a rate of 0: there is none
  double wire_rate = 0;  // of a host's link, out and in, packet headers included
  double site_rate = 0;  // of a site's line to other sites, out and in; 0: only the hosts' links limit
  double copy_rate = 0;
  double add_rate = 0;  // two operands, in bytes of one
  std::vector<CodecSpeed> codecs;

  // The speed of the longest matching beginning of the specification ("minmax:bits=4,bucket_size=1024"). "none" is
  // infinitely fast; a codec without an entry is as slow as the slowest typical entry.
  CodecSpeed speed_of(std::string_view codec) const;
};

// Measured on the machine that it names; the wire's rate is assumed.
const Profile& default_profile();

// Lines of a key and a value; # begins a comment. Missing keys have the default profile's values. InvalidArgument with
// the line that cannot be read.
Result<Profile> parse_profile(std::string_view text);
// The text that parse_profile() reads back to an equal profile.
std::string to_text(const Profile& profile);

// ---- prices

// Rates are bytes per second; 0 is infinitely fast.
struct MachineModel {
  double wire_rate = 1.25e9;      // of a host's link, out and in
  double shares_rate = 0;         // the same for plans with uses_shares() (equivalent_rate); 0: wire_rate
  double wire_efficiency = 1;     // share of it left by packet headers
  double burst_bytes = 0;         // that an idle host sends at once
  LinkCost wire = {50e-6, 0, 0};  // between hosts, and between sites if there are several
  double near_latency = 0;        // between hosts of one site, if there are several sites
  double site_rate = 0;           // of a site's line to the others, out and in
  LinkCost local = {2e-6, 0, 5e9};
  LinkCost inside{};  // of another library inside a host; a rate of 0: there is none
  double copy_rate = 0;
  double add_rate = 0;     // two operands, in bytes of one
  double encode_rate = 0;  // of the call's codec, in bytes of its input
  double decode_rate = 0;
  double cores = 0;                // of a machine, shared by its ranks; 0: each rank has its own
  int hosts_per_machine = 1;       // virtual hosts share its cores
  std::uint64_t window_bytes = 0;  // of distant ranks (window_of); 0: they are near
};

// TCP with timestamps carries 1448 bytes in an Ethernet frame of 1514.
inline constexpr double kTcpEfficiency = 1448.0 / 1514.0;

// LinkCost::contention of TCP if ranks outnumber cores: data in several peers' sockets leaves the cache before its
// rank's turn comes. Measured with 3, 4 and 8 ranks on 2 cores, 1 to 16 MiB.
inline constexpr double kContention = 0.15;

// The profile's speeds, with those of the codec of this specification.
MachineModel links_of(const Profile& profile, std::string_view codec);

// 0 at a rate of 0.
inline double seconds(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

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

// The most bytes that pass one after another because lanes are ordered (Lane::after); 0 if none is. `wire_bytes` are
// those that a lane sends or receives, whichever are more.
double longest_passage(const RankSchedule& schedule, std::uint64_t slice_elements,
                       const std::function<double(const Lane& lane)>& wire_bytes);

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
  double busiest_site_bytes = 0;  // to other sites or from them
  double mean_sent_bytes = 0;     // by a rank to ranks of other hosts, mean over all ranks
};

inline constexpr double kDistantRoundTrip = std::chrono::duration<double>(qccl::kDistantRoundTrip).count();  // seconds
// What the window of a rank is at most, unless QCCL_WINDOW_BYTES says otherwise.
inline constexpr std::uint64_t kMostWindowBytes = std::uint64_t{64} << 20;
// The window of ranks a round trip of so many seconds apart, in bytes: what a link carries in that time and in 5 ms
// in which a busy rank answers; at least 64 KiB and at most `most`. 0 if they are near.
std::uint64_t window_of(double wire_rate, double round_trip, std::uint64_t most);

inline constexpr int kAllRanks = 0;

// Without hosts in the layout each rank has its own. `request` gives the slice length. Examines the schedules of about
// `most_ranks` ranks, spread over the hosts, and assumes that the others are like them; the resulting bytes are then
// estimates.
CostEstimate price(const Request& request, const Layout& layout, const MachineModel& links, const Encoding& encoding,
                   int most_ranks = kAllRanks);

// ---- the choice of an algorithm for a call that requests none: a pure function of values that are equal on all ranks
//
// Every algorithm that may be chosen is priced at the next smaller size class, four of which make a doubling; the
// cheapest is chosen. Sums in rank order that are encoded at most twice have a bonus: another algorithm must save a
// tenth. Algorithms that round partial sums at every hop are never chosen for sums: ring, tree, recursive doubling and
// binomial, if compressed or of 16-bit floats. Hierarchical rounds once per host or site, whichever costs less; it is a
// candidate if hosts or sites have several ranks, or if a broadcast has several hosts. An all_reduce in one lane
// (one-shot, recursive doubling) is chosen up to 1 MiB. Compressed one-shot sums are chosen between distant ranks,
// elsewhere only without SRA. What is only_on_request (algorithms/registry.h) is never chosen.

// The properties of a call that the choice depends on.
struct SelectionKey {
  Collective collective = Collective::all_reduce;
  std::uint64_t elements = 0;  // if ranks have pieces: of all together
  DataType type = DataType::float32;
  bool compressed = false;
  double encoded_bytes = 4;          // of an element on the wire
  std::uint32_t bucket_size = 1;     // 1 uncompressed
  std::uint64_t slice_elements = 1;  // codec/geometry.h
};

struct Candidate {
  Algorithm algorithm;
  CostEstimate price;
  std::string_view unsupported_reason;  // why it may not be chosen, in words; empty if it may
};

struct Choice {
  Algorithm algorithm;
  std::vector<Candidate> candidates;  // all of the collective's, priced at the key's own size
  std::string reason;                 // in words
};

// The layout has the host of each rank.
Algorithm choose(const SelectionKey& key, const Layout& layout, const MachineModel& links);
// The same with the reason.
Choice explain(const SelectionKey& key, const Layout& layout, const MachineModel& links);
// Each rank's group in a hierarchical plan of the call: its host, or its site if that is cheaper.
const std::vector<int>& hierarchy_of(const SelectionKey& key, const Layout& layout, const MachineModel& links);

// The price of the call with this algorithm, at the key's own size. Examines the schedules of some 16 ranks.
CostEstimate predict(const SelectionKey& key, Algorithm algorithm, const Layout& layout, const MachineModel& links);
// The seconds of a message of so many bytes.
double message_seconds(double bytes, bool inside_host, const MachineModel& links);

// Sizes with the same number get the same choice; it grows with the elements.
int size_class(std::uint64_t elements);
// The smallest number of elements of the class.
std::uint64_t least_of_class(int size_class);

}  // namespace qccl::plan
