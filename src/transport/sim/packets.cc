#include "transport/sim/packets.h"

#include <algorithm>
#include <functional>

namespace qccl::sim {
namespace {

constexpr std::size_t kHeaderBytes = 66;  // Ethernet's, IP's and TCP's, of each segment

std::size_t wire_bytes(std::size_t bytes) {
  constexpr auto kSegment = static_cast<std::size_t>(kSegmentBytes);
  return bytes + (bytes + kSegment - 1) / kSegment * kHeaderBytes;
}

std::size_t slot(int number) { return static_cast<std::size_t>(number); }

}  // namespace

Packets::Packets(Pipes& pipes, const NetworkOptions& options, int world, std::uint64_t seed)
    : pipes_(pipes),
      options_(options),
      world_(world),
      random_(seed),
      streams_(slot(world) * slot(world) * slot(options.connections)) {}

Packets::Stream& Packets::stream_of(const Flight& frame) {
  const int connection = std::max(0, frame.connection);
  auto& stream = streams_[slot((frame.from * world_ + frame.to) * options_.connections + connection)];
  if (stream != nullptr) return *stream;
  const Nanoseconds latency = latency_between(options_, frame.from, frame.to);
  const Route there = pipes_.route(frame.from, frame.to, connection);
  const Route back = pipes_.route(frame.to, frame.from, connection);
  const Nanoseconds handshake =
      2 * latency + pipes_.idle_time(there, kHeaderBytes) + pipes_.idle_time(back, kHeaderBytes);
  stream = std::make_unique<Stream>(
      Stream{.tcp = {make_congestion(options_.congestion, handshake, random_()), handshake, options_.packet_bytes},
             .there = there,
             .back = back,
             .latency = latency});
  return *stream;
}

void Packets::write(Flight& frame, TimePoint now) {
  Stream& stream = stream_of(frame);
  frame.passed = now;
  stream.tcp.write(frame, frame.size);
  pump(stream, now);
}

void Packets::schedule(TimePoint time, Event event) {
  event.time = time;
  event.order = next_order_++;
  events_.push_back(event);
  std::ranges::push_heap(events_, std::greater<>());
}

void Packets::pump(Stream& stream, TimePoint now) {
  while (const auto packet = stream.tcp.send(now)) launch(stream, *packet, now);
  const TimePoint timer = stream.tcp.next_timer();
  if (timer >= stream.timer) return;  // the event that comes before sets it again
  stream.timer = timer;
  schedule(timer, {.stream = &stream, .kind = Kind::timer});
}

void Packets::launch(Stream& stream, const TcpConnection::Packet& packet, TimePoint now) {
  ++counts_.sent;
  counts_.sent_again += packet.is_repeated ? 1 : 0;
  if (options_.loss > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < options_.loss) {
    ++counts_.lost;
    return;
  }
  hop({.time = now,
       .stream = &stream,
       .kind = Kind::packet,
       .pipes_left = static_cast<std::uint8_t>(stream.there.count),
       .packet = packet});
}

// At the event's time the packet has come whole to the next pipe.
void Packets::hop(Event event) {
  const bool is_packet = event.kind == Kind::packet;
  const Route& route = is_packet ? event.stream->there : event.stream->back;
  const bool is_at_source = event.pipes_left > route.after_latency;
  const int pipe = route.pipes[--event.pipes_left];
  const std::size_t bytes = is_packet ? wire_bytes(event.packet.bytes) : kHeaderBytes;
  if (is_packet && !pipes_.has_room(pipe, bytes, event.time)) {
    ++(is_at_source ? counts_.dropped_up : counts_.dropped_down);
    return;
  }
  const Pipes::Passage passage = pipes_.pass(pipe, bytes, event.time);
  if (!is_at_source) event.waited += passage.begin - event.time;
  const bool travels = is_at_source && event.pipes_left == route.after_latency;
  schedule(std::max(event.time, passage.end) + (travels ? event.stream->latency : Nanoseconds(0)), event);
}

std::vector<Flight*> Packets::step() {
  std::ranges::pop_heap(events_, std::greater<>());
  const Event event = events_.back();
  events_.pop_back();
  if (event.kind == Kind::timer) {
    handle_timer(event);
  } else if (event.pipes_left > 0) {
    hop(event);
  } else if (event.kind == Kind::packet) {
    return arrive(event);
  } else {
    event.stream->tcp.acknowledge(event.packet, event.time);
    pump(*event.stream, event.time);
  }
  return {};
}

// A frame's time since its departure is the latency, its last packet's waiting for others to the same host, and for the
// rest that of its sender's end: its own line, the window, and what had to be sent again.
std::vector<Flight*> Packets::arrive(const Event& event) {
  Stream& stream = *event.stream;
  const std::vector<Flight*> frames = stream.tcp.arrive(event.packet);
  for (Flight* const frame : frames) {
    const Nanoseconds time = event.time - frame->passed;
    const Nanoseconds waiting = std::min(event.waited, time - stream.latency);
    frame->passed = event.time;
    frame->delays.latency += stream.latency;
    frame->delays.waiting += waiting;
    frame->delays.wire += time - stream.latency - waiting;
  }
  hop({.time = event.time,
       .stream = &stream,
       .kind = Kind::acknowledgement,
       .pipes_left = static_cast<std::uint8_t>(stream.back.count),
       .packet = event.packet});
  return frames;
}

void Packets::handle_timer(const Event& event) {
  Stream& stream = *event.stream;
  if (event.time != stream.timer) return;  // an earlier one has taken its place
  stream.timer = kForever;
  stream.tcp.on_timer(event.time);
  pump(stream, event.time);
}

PacketCounts Packets::counts() const {
  PacketCounts counts = counts_;
  for (const auto& stream : streams_) counts.timeouts += stream == nullptr ? 0 : stream->tcp.timeouts();
  return counts;
}

}  // namespace qccl::sim
