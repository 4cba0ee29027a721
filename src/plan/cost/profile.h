// What links and processors do: what the cost model calculates with, and the choice of algorithms by
// it. Measured by `qccl doctor --measure`; as text it is what QCCL_PROFILE names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qccl::plan {

// Between two ranks. Rates are bytes a second; 0 is infinitely fast.
struct Link {
  double latency = 0;        // seconds from a rank's call to its sight of the other's frame, of few bytes
  double frame_seconds = 0;  // of that, a rank's processor for a frame, at either end
  double rank_rate = 0;      // of a rank's processor that puts bytes in or takes them out
  double contention = 0;     // share by which those of long streams take longer for each peer beyond the first
};

// Of a codec whose specification begins with `codec`, by bytes of float32.
struct CodecSpeed {
  std::string codec;
  double encode_rate = 0;
  double decode_rate = 0;  // decoding and adding
};

struct Profile {
  std::string machine;   // where it was measured
  Link shm;              // inside a host
  Link loopback;         // inside a host over TCP
  Link wire;             // between hosts
  double wire_rate = 0;  // of a host's link, out and in, packets' headers included
  double copy_rate = 0;
  double add_rate = 0;  // two operands, by the bytes of one
  std::vector<CodecSpeed> codecs;

  // That of the longest beginning of the specification ("minmax:bits=4,bucket_size=1024"); infinitely
  // fast for "none", and the slowest there is for a codec without one.
  CodecSpeed speed_of(std::string_view codec) const;
};

// Measured on the machine that it names; the wire's rate is an assumption.
const Profile& default_profile();

// Lines of a key and a value; # begins a comment. What is not given is the default's.
// InvalidArgument with the line that can't be read.
Result<Profile> parse_profile(std::string_view text);
// What parse_profile() reads back as the same.
std::string to_text(const Profile& profile);

}  // namespace qccl::plan
