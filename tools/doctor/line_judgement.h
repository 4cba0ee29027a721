// What measurements of the lines between hosts say about them: a queue that is too short, a host whose line is slower
// than the others', a line that other programs use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qccl::tools {

// A TCP connection that was kept full for a while. Seconds.
struct FilledLine {
  double rate = 0;  // bytes a second
  double shortest_round_trip = 0;
  double full_round_trip = 0;  // while the queue was full; smoothed, as TCP has it
  std::uint64_t sent_packets = 0;
  std::uint64_t resent_packets = 0;
};

// A short queue, or packets lost without one, as the end of a sentence: "; its queue ..."; "" if the line has neither.
std::string judge_queue(const FilledLine& line);

// What a host's line carries, in bytes a second.
struct HostRates {
  double out = 0, in = 0;                // the most that one of its measurements carried; 0: none did
  double others_out = 0, others_in = 0;  // of other programs, while the job rested
};

// A sentence for each finding, by host; `ranks`: one of each host.
std::vector<std::string> judge_hosts(const std::vector<HostRates>& hosts, const std::vector<int>& ranks);

// "47.9 Mbit/s"
std::string line_rate_text(double bytes_per_second);

// Bytes that a host has sent and received over its network interfaces, but for the loopback one, from the text of
// /proc/net/dev.
struct NetworkBytes {
  std::uint64_t out = 0, in = 0;
};
NetworkBytes parse_network_bytes(const std::string& text);

}  // namespace qccl::tools
