// A packet on the wires of wan_link, and the stages that it passes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <span>
#include <vector>

namespace qccl::wan {

inline constexpr std::size_t kVirtioHeaderBytes = 10;  // struct virtio_net_hdr, in front of every packet
inline constexpr std::size_t kIpHeaderBytes = 20;
inline constexpr double kNever = std::numeric_limits<double>::infinity();
inline constexpr double kDropped = -1;

// Passes bytes at a rate, as a virtual clock: a packet is through at max(now, the one before) + bytes / rate, and is
// dropped if more than `queue` bytes are ahead of it.
struct Stage {
  double rate = 0;  // bytes a second; 0: unlimited
  double queue = 0;
  double free_ns = 0;

  // When a packet that comes at `at_ns` is through, or kDropped.
  double pass(double at_ns, double bytes) {
    if (rate <= 0) return at_ns;
    const double ahead = std::max(0.0, free_ns - at_ns) * rate / 1e9;
    if (ahead > 0 && ahead + bytes > queue) return kDropped;
    free_ns = std::max(free_ns, at_ns) + bytes / rate * 1e9;
    return free_ns;
  }
};

struct Packet {
  double due_ns = 0;  // when it leaves the queue that it is in
  int target = 0;
  std::vector<char> bytes;
};

struct Counters {
  std::uint64_t sent_bytes = 0, delivered_bytes = 0;
  std::uint64_t dropped_by_flow = 0, dropped_out = 0, dropped_in = 0, lost = 0, refused = 0;  // packets
};

struct Host {
  int device = -1;
  Stage out, in;
  std::deque<Packet> held;        // by their flow's cap
  std::deque<Packet> travelling;  // towards their target's link
  std::deque<Packet> arriving;    // passing this host's link
  Counters counters;
};

inline double due(const std::deque<Packet>& queue) { return queue.empty() ? kNever : queue.front().due_ns; }

// The last byte of the IPv4 destination, less one; -1 if the packet is no IPv4.
inline int target_host(std::span<const char> packet) {
  const char* ip = packet.data() + kVirtioHeaderBytes;
  return ip[0] >> 4 == 4 ? static_cast<unsigned char>(ip[19]) - 1 : -1;
}

// Bytes on an Ethernet. TCP hands over several segments as one packet; on a wire each has its own headers.
inline double wire_bytes(std::span<const char> packet) {
  constexpr double kEthernetHeader = 14;
  std::uint16_t header = 0, segment = 0;  // fields hdr_len and gso_size
  std::memcpy(&header, packet.data() + 2, sizeof(header));
  std::memcpy(&segment, packet.data() + 4, sizeof(segment));
  const double bytes = static_cast<double>(packet.size() - kVirtioHeaderBytes);
  const bool is_segmented = packet[1] != 0 && segment != 0;
  const double segments = is_segmented ? std::ceil((bytes - header) / segment) : 1;
  return bytes + kEthernetHeader * segments + (segments - 1) * header;
}

// Equal for the packets of one flow: protocol, addresses and ports.
inline std::uint64_t flow_key(std::span<const char> packet) {
  const char* ip = packet.data() + kVirtioHeaderBytes;
  std::uint64_t addresses = 0;
  std::uint32_t ports = 0;
  std::memcpy(&addresses, ip + 12, sizeof(addresses));
  const std::size_t length = (ip[0] & 15) * std::size_t{4};
  const bool has_ports = (ip[9] == 6 || ip[9] == 17) && packet.size() >= kVirtioHeaderBytes + length + sizeof(ports);
  if (has_ports) std::memcpy(&ports, ip + length, sizeof(ports));
  return addresses * 0x9E3779B97F4A7C15ULL ^ std::uint64_t{ports} << 8 ^ static_cast<unsigned char>(ip[9]);
}

}  // namespace qccl::wan
