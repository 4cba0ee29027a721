// The speeds of links and processors, from which the cost model and the choice of algorithms calculate. `qccl doctor
// --measure` measures them; QCCL_PROFILE names a file with them as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qccl::plan {

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
};

struct Profile {
  std::string machine;   // where it was measured
  LinkCost shm;          // inside a host
  LinkCost loopback;     // inside a host over TCP
  LinkCost wire;         // between hosts
  double wire_rate = 0;  // of a host's link, out and in, packet headers included
  double copy_rate = 0;
  double add_rate = 0;  // two operands, in bytes of one
  std::vector<CodecSpeed> codecs;

  // The speed of the longest matching beginning of the specification ("minmax:bits=4,bucket_size=1024"). "none" is
  // infinitely fast; a codec without an entry is as slow as the slowest entry.
  CodecSpeed speed_of(std::string_view codec) const;
};

// Measured on the machine that it names; the wire's rate is assumed.
const Profile& default_profile();

// Lines of a key and a value; # begins a comment. Missing keys have the default profile's values. InvalidArgument with
// the line that cannot be read.
Result<Profile> parse_profile(std::string_view text);
// The text that parse_profile() reads back to an equal profile.
std::string to_text(const Profile& profile);

}  // namespace qccl::plan
